"""Judges at work: judging files, ranking models, serving, rewarding another model's training."""
