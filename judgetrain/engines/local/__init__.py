"""Text generation with a model in this process."""
