"""How batches reach the model."""
