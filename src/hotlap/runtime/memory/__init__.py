"""Counting what a training step holds in memory, by storages."""
