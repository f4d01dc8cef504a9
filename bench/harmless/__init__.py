"""What a trial does to files: every row of tests/harmless in every mode of isolation, compared with a plain run."""
