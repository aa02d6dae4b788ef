"""Evaluation trees: their schema, their growth and their pruning."""
