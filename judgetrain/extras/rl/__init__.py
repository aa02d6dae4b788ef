"""On-policy training of a judge on whole branches: stage rl."""
