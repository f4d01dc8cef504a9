"""Estimated peaks of memory against real ones."""
