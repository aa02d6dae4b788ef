"""Stage selfeval: an LLM answers prompts and scores its own answers."""
