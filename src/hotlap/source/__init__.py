"""Training code read and edited as source: linted, patched, written by a scaffold."""
