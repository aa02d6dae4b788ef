"""Systems ranked by a judge's verdicts on their responses to the same prompts."""
