"""The median time of a single call of an inference target, from the input to the output on the host.

Arms take turns block by block, so that drift of the machine reaches the median of each. A mean, which is what the speed
is made of, also holds the calls that something delayed.
"""

from __future__ import annotations

from statistics import median

from hotlap.measure.latency import timed_calls
from hotlap.records import Run

unit = "s"
smallest_change = 0.01


def of_run(run: Run) -> float:
    """0 where steps are no calls."""
    calls = list(timed_calls(run))
    return median(calls) if calls else 0.0
