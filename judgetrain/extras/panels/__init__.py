"""Several judges as one: cascades, which ask the next one about what is undecided, and juries."""
