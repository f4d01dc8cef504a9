"""Predicted steps of several processes against real ones."""
