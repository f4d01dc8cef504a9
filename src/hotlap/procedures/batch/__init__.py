"""Batch sizes: how fast the script, or its model alone, is at others than its own, and which of them fit."""
