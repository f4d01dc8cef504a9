"""Find the knee of throughput by batch size, and the next size to measure. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.records import BatchRate

TOLERANCE = 0.02
"""The largest loss of throughput at the knee, as a share of the best throughput. 3 % are promised: the rest is what
measured rates may be off."""

CLOSE_ENOUGH = 1.3
"""Sizes that differ by at most this factor count as equal."""

_ROUND_FROM = 32
_ROUND_TO = 8


def measured(rates: Sequence[BatchRate]) -> list[BatchRate]:
    """The sizes that worked, in ascending order."""
    return sorted((it for it in rates if not it.error and it.throughput > 0), key=lambda it: it.batch_size)


def knee(rates: Sequence[BatchRate]) -> BatchRate | None:
    """The smallest size whose throughput is within :data:`TOLERANCE` of the best."""
    worked = measured(rates)
    best = max((it.throughput for it in worked), default=0.0)
    return next((it for it in worked if it.throughput >= (1 - TOLERANCE) * best), None)


def still_rising(rates: Sequence[BatchRate]) -> bool:
    """Whether the largest size that worked is clearly faster than all smaller ones."""
    worked = measured(rates)
    if len(worked) < 2:
        return True
    return worked[-1].throughput > (1 + TOLERANCE) * max(it.throughput for it in worked[:-1])


def between(low: int, high: int) -> int:
    """The geometric middle of two sizes, rounded to a usual size; 0 if they are close enough."""
    if low < 1 or high / low <= CLOSE_ENOUGH:
        return 0
    middle = math.sqrt(low * high)
    size = round(middle / _ROUND_TO) * _ROUND_TO if middle >= _ROUND_FROM else round(middle)
    return size if low < size < high else 0


def next_below_knee(rates: Sequence[BatchRate]) -> int:
    """The size that shows whether the knee is smaller; 0 if it is known closely enough."""
    found = knee(rates)
    smaller = [it for it in measured(rates) if found is not None and it.batch_size < found.batch_size]
    return between(smaller[-1].batch_size, found.batch_size) if found is not None and smaller else 0


def next_below_failure(rates: Sequence[BatchRate]) -> int:
    """The size that shows how much more fits, if the largest that worked is the fastest; else 0."""
    worked = measured(rates)
    failed = min((it.batch_size for it in rates if it.out_of_memory), default=0)
    if not worked or failed <= worked[-1].batch_size or not still_rising(rates):
        return 0
    return between(worked[-1].batch_size, failed)
