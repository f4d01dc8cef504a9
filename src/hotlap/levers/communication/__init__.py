"""Levers for training in several processes: what they exchange, how much at once, and how often."""
