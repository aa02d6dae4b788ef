"""What labelled pairs give without training, as methods of stage evaluate."""
