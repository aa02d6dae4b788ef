"""Stage rubric: what people care about, found in trees, verdicts and labels, by kind of query."""
