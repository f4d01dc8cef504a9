"""Levers that reduce peak memory."""
