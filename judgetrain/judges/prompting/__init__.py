"""Prompts of judges, and the reading of their replies."""
