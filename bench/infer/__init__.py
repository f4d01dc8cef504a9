"""Engines used by hand against the form of a model that `hotlap infer` recommends."""
