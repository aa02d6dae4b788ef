"""Stage correct: responses that a judge scored low, rewritten."""
