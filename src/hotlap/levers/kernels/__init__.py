"""How the model's operators are computed."""
