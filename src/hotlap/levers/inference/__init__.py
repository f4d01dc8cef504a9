"""Levers of inference alone: what is only right where nothing is trained."""
