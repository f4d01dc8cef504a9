"""How often the measuring procedure raises a false alarm, and how often it finds what is there: measured."""
