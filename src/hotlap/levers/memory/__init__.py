"""Levers that make the peak of memory smaller."""
