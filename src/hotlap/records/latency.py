"""How long single calls of an inference target took."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate


class LatencyPercentile(Record, frozen=True, kw_only=True):
    """The time that a ``share`` of the calls does not exceed, with an interval by order statistics."""

    share: float
    seconds: Estimate


class Latency(Record, frozen=True, kw_only=True):
    """The calls of one arm, those of all its launches together.

    A percentile is missing where there were too few calls for an interval that ends on both sides. The intervals are
    over calls; how far launches differ, only the ratio of two arms shows.
    """

    calls: int
    worst_seconds: float
    percentiles: tuple[LatencyPercentile, ...] = ()
    confidence: float = 0.95
