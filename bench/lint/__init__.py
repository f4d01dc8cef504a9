"""How fast ``hotlap lint`` is."""
