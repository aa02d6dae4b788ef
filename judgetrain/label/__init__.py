"""From comparisons to training data: the teacher, trees as a stage, labels, examples and preference pairs."""
