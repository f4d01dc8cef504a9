"""One file for each kind of study: what its reports say differently."""
