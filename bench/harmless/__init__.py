"""What a trial does to files: every row of tests/harmless in every way of isolating, next to the same row plainly."""
