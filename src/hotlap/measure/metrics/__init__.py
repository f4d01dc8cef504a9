"""One file for each metric: a figure of a launch, besides its speed, that candidates are compared by."""
