"""Check that training still produces the same results: one module per gate, and :mod:`.verdict` for the conclusion."""
