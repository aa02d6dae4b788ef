"""The front door for one's own data: a look at it with a recipe (init), and what a run would take (preflight)."""
