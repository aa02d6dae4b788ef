"""Labelled comparisons to evaluate on: published formats read by adapters, votes, groups."""
