"""What a file means, computed once and shared by all rules: names, kinds of values, training loops, call arguments."""
