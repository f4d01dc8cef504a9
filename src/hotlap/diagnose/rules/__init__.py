"""One file each: a known cause of lost time."""
