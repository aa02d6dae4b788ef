"""Text generation by a server behind the OpenAI-compatible protocol."""
