"""Dialogues and comparisons: sources, readers, clustering, responses, benchmarks, the generated world."""
