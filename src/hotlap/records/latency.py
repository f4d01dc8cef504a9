"""The latency of single calls of an inference target, and how many per second one process answers in time."""

from __future__ import annotations

from typing import Literal

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


class LoadLimit(Record, frozen=True, kw_only=True):
    """The largest rate of arriving calls at which one arm keeps the required p99, waiting included.

    ``calls_per_second`` has an interval over launches; it is None where a launch timed too few calls, or where calls
    exceed the p99 even without a queue (``obstacle``). ``busy`` is the mean share of the time in which the process
    computes at that rate. With ``at_least`` the p99 is kept at the highest utilisation that was computed, in at least
    one launch.
    """

    calls_per_second: Estimate | None = None
    busy: float = 0.0
    at_least: bool = False
    obstacle: Literal["", "too-few-calls", "too-slow"] = ""


class LoadComparison(Record, frozen=True, kw_only=True):
    """Two arms under open-loop load: calls arrive as a Poisson process, and one process answers one after the other.

    It is computed from the measured times of calls, and nothing was served. ``ratio`` is the candidate's rate over the
    baseline's, compared replicate by replicate; None where one of the two is unknown. Launches with fewer than
    ``fewest_calls`` are not used, and ``most_busy`` is the highest utilisation that is computed.
    """

    p99_seconds: float
    baseline: LoadLimit
    candidate: LoadLimit
    ratio: Estimate | None = None
    replicates: int
    confidence: float
    fewest_calls: int
    most_busy: float
