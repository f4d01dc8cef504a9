"""One file each: what a trial does besides running the script."""
