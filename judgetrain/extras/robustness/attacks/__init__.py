"""Attacks on judges: edits of a comparison that keep its label, answers without content, and forged verdicts."""
