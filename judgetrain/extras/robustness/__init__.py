"""How judges stand up to attacks: the suite of attacks, what it found, and its tables."""
