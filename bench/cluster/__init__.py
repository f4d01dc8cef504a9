"""Replicates on several nodes of a cluster."""
