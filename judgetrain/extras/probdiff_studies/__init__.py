"""Stage studies: the ProbDiff paper's studies."""
