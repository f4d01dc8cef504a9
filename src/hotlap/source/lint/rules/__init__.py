"""The lint rules, one file each, named after the bad pattern."""
