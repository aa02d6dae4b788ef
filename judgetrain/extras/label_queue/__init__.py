"""Where people's labels are to be spent: comparisons ranked by what a label would tell."""
