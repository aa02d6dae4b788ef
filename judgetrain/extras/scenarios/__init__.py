"""Stage scenarios: of what kinds training dialogues and benchmarks are."""
