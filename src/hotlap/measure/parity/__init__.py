"""Whether training still computes the same thing: one module a gate, and :mod:`.verdict` that draws the conclusion."""
