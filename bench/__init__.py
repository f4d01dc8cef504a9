"""Benchmarks: every claim about speed or error rates is measured here; results lie in docs/benchmarks."""
