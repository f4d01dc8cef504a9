"""Which world the executors made of arithmetic show: another one has other noise, and every test holds in each."""

from __future__ import annotations

NUMBER = 0
"""Set by ``pytest --world``."""
