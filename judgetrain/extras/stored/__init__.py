"""Verdicts read from files, as methods of stage evaluate."""
