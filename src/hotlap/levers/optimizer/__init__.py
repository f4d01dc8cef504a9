"""How the weights are updated."""
