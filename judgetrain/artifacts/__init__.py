"""Artifacts: the files that a stage leaves on disk, each whole or absent."""
