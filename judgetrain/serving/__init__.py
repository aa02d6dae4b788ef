"""Judges at work: rank systems."""
