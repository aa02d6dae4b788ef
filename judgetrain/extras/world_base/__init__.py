"""How the quickstart's base model was made: the text of its pretraining, and the training."""
