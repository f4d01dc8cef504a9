"""The number formats in which the model computes."""
