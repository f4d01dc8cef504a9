"""``hotlap new``: a complete, fast training script to begin with. Reads and writes text alone, and never runs any."""
