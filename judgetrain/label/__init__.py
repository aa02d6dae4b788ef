"""From comparisons to training data: the teacher, trees as a stage, labels, rewards, examples and preference pairs."""
