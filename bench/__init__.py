"""Benchmarks: every claim about speed or error rates is measured here; results are stored in docs/benchmarks."""
