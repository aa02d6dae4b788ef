"""Scores of responses from the model's own probabilities: token statistics, glass-box features, ProbDiff, rewards."""
