"""What watches a long run from inside of its process: a clock that rests most of the time, and rows of a second."""
