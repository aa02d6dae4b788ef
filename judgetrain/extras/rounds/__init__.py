"""Rounds of training: whether another may follow, and which was the best."""
