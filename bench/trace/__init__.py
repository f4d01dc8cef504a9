"""How fast traces are read and explained, in how much memory, and how that compares."""
