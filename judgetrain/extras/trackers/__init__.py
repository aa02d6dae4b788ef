"""Trackers of experiments that are told everything: W&B, trackio, MLflow."""
