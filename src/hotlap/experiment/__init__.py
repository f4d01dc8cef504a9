"""Trials, what they cost, and what is known so far: what every procedure is made of."""
