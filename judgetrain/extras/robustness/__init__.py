"""How judges stand up to attacks: the battery, what it found, and its tables."""
