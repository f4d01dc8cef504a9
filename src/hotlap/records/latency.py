"""The latency of single calls of an inference target."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate


class LatencyPercentile(Record, frozen=True, kw_only=True):
    """The time that a ``share`` of the calls does not exceed, with an interval by order statistics."""

    share: float
    seconds: Estimate


class Latency(Record, frozen=True, kw_only=True):
    """The calls of one arm, from all of its launches.

    A percentile is missing where there were too few calls for a two-sided interval. The intervals are over calls; only
    the ratio of two arms shows how far launches differ.
    """

    calls: int
    worst_seconds: float
    percentiles: tuple[LatencyPercentile, ...] = ()
    confidence: float = 0.95
