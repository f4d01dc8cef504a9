"""Levers for inference only: they are not valid for training."""
