"""Shards done by workers on a Ray cluster."""
