"""What one would do without training, as methods of stage evaluate."""
