"""One report of several evaluations."""
