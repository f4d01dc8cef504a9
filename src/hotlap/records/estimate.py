"""A measured value with its interval."""

from __future__ import annotations

from hotlap.records.base import Record


class Estimate(Record, frozen=True, kw_only=True):
    """A measured value with its interval."""

    value: float
    low: float
    high: float
    unit: str = ""

    @property
    def is_bound(self) -> bool:
        """Whether only an upper bound is known."""
        return self.low == 0.0 and self.value == self.high > 0.0
