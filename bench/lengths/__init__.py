"""How much faster whole passes over real sentences are in batches of similar length."""
