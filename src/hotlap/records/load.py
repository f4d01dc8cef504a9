"""Calls that arrive at random times: how many per second one process answers in time."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate

FEWEST_LOAD_CALLS: Final = 100
"""With fewer timed calls in a launch, its 99th percentile is its worst call."""
MOST_BUSY: Final = 0.95
"""The highest utilisation that is computed: closer to 1 a queue takes too long to reach its steady state."""

LoadObstacle: TypeAlias = Literal["", "too-few-calls", "too-slow"]


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
    obstacle: LoadObstacle = ""


class LoadComparison(Record, frozen=True, kw_only=True):
    """Two arms under open-loop load: calls arrive as a Poisson process, and one process answers one after the other.

    It is computed from the measured times of calls, and nothing was served. ``ratio`` is the candidate's rate over the
    baseline's, compared replicate by replicate; None where one of the two is unknown.
    """

    p99_seconds: float
    baseline: LoadLimit
    candidate: LoadLimit
    ratio: Estimate | None = None
    replicates: int
    confidence: float
