"""The model of a file, computed once and shared by all rules: names, kinds of values, training loops, call
arguments."""
