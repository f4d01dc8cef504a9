"""Batch sizes: throughput of the script, or of its model alone, at other sizes, and which sizes fit."""
