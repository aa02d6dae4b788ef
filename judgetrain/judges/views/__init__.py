"""Pages of single evaluation trees to look at."""
