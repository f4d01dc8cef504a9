"""Training code read and edited as source: linted, patched, written anew."""
