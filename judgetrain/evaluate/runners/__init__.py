"""How each kind of method is run on benchmarks, and what of earlier runs is taken over."""
