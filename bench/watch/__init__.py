"""What `hotlap run --watch` costs a run: stretches with it and without it, in turns, within one process."""
