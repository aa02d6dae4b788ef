"""A page on which two judges' verdicts on the same comparisons stand side by side."""
