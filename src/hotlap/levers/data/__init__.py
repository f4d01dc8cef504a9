"""How batches come to the model."""
