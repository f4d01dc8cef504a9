"""Benchmarks: every claim about speed or error rates is measured here, and its result committed under docs/benchmarks."""
