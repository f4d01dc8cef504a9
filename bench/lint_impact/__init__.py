"""What the patterns that lint finds cost: each against the same script without it."""
