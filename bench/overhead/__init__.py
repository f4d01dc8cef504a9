"""What the step clock costs: the same steps with and without hotlap's hooks, in turns, within one process."""
