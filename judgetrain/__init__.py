"""judgetrain: train your own LLM judge by branching preference learning."""

__version__ = "0.1.0"
