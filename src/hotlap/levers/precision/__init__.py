"""In which number formats the model computes."""
