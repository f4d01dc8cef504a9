"""Costs as shares of the step, with an interval where the run allows one. Not a rule itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev

from hotlap.measure.student import quantile
from hotlap.records import Estimate

UNIT = "of the step"
_BATCHES = 8
_LEAST_STEPS = 2 * _BATCHES


def share_of_steps(part_seconds: Sequence[float], whole_seconds: Sequence[float]) -> Estimate:
    """The mean of one column over the mean of another, both one row a step, with a 95 % interval.

    The interval comes from the means of eight stretches of consecutive steps (batch means; Law and Kelton,
    *Simulation Modeling and Analysis*), since neighbouring steps resemble each other; with fewer than sixteen steps
    there is none, and the value stands at both ends. Raises :class:`ValueError` for columns of unequal length.
    """
    if len(part_seconds) != len(whole_seconds):
        raise ValueError(f"Columns of {len(part_seconds)} and {len(whole_seconds)} steps.")
    whole = math.fsum(whole_seconds)
    if whole <= 0:
        return exactly(0.0)
    value = math.fsum(part_seconds) / whole
    steps = len(whole_seconds)
    if steps < _LEAST_STEPS:
        return exactly(value)
    edges = [steps * i // _BATCHES for i in range(_BATCHES + 1)]
    mean = whole / steps
    residuals = [
        fmean(part - value * total for part, total in zip(part_seconds[a:b], whole_seconds[a:b], strict=True)) / mean
        for a, b in pairwise(edges)
    ]
    margin = quantile(0.975, _BATCHES - 1) * stdev(residuals) / math.sqrt(_BATCHES)
    return between(value, value - margin, value + margin)


def exactly(value: float) -> Estimate:
    """A share that was measured once, without an interval."""
    return between(value, value, value)


def between(value: float, low: float, high: float) -> Estimate:
    """A share with its interval, held within 0 and 1."""
    low, value, high = (min(1.0, max(0.0, it)) for it in (low, value, high))
    return Estimate(value=value, low=low, high=high, unit=UNIT)


def at_most(high: float) -> Estimate:
    """A share of which only an upper bound is known: all that could be gained, were it free."""
    return between(high, 0.0, high)
