"""Lint training code without running it: one file per rule, and the engine that runs the rules."""
