"""Edits of Python source that keep its formatting: said as records, queued, and applied together."""
