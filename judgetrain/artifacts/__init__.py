"""What a stage leaves on disk, and how it gets there whole."""
