"""A judge as a reward: from verdicts on pairs to one number for each response of a group."""
