"""One file each: what is said differently of the studies of one kind."""
