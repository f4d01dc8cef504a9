"""The noise of the fake executors: another number means other noise, and every test holds with each."""

from __future__ import annotations

NUMBER = 0
"""Set by ``pytest --world``."""
