"""How far the mean of one column of steps lies from that of another, with an interval.

The interval knows how much the steps of each launch vary, and nothing else. Two launches of the same code differ by
more than that: see :data:`RUN_SPREAD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, variance

from hotlap.measure.student import quantile
from hotlap.records import Estimate

RUN_SPREAD = 0.06
"""By how much the step times of two launches of the same code differ at most, as a share: the upper end of what was
measured on a shared machine (2 to 6 %). A difference between two single launches that is smaller shows nothing."""

SAME_WORK_SPREAD = 0.25
"""The same for profiled launches that do the same work: two runs of one configuration have been seen to differ by 13 %,
since a profiler makes the host slower, and its speed varies. It holds for machines that are otherwise idle; where
others kept the cores busy, half of the pairs among ten launches differed by 45 % and more."""

_WIDEST = 10.0
"""The widest half of an interval, in logarithms: a factor of 22,000 means that nothing is known."""

_CONFIDENCE = 0.95
_BATCHES = 8


def relative_change(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """``mean(after) / mean(before) - 1`` with a 95 % interval; None with fewer than two steps on either side, and where
    steps take no time.

    Steps resemble their neighbours, so of sixteen steps and more the means of eight stretches are taken in their place
    (batch means; Law and Kelton, *Simulation Modeling and Analysis*). The ratio's error is that of its two means
    (first-order propagation), its degrees of freedom are Welch's and Satterthwaite's, rounded down. The interval is
    that of the ratio's logarithm, so that it never reaches below -100 %.
    """
    if len(before) < 2 or len(after) < 2 or fmean(before) <= 0 or fmean(after) <= 0:
        return None
    errors = [_relative_error(column) for column in (before, after)]
    ratio = fmean(after) / fmean(before)
    squared = math.fsum(error for error, _ in errors)
    margin = 0.0
    if squared > 0:
        freedom = squared**2 / math.fsum(error**2 / (rows - 1) for error, rows in errors)
        margin = math.sqrt(squared) * quantile(0.5 + _CONFIDENCE / 2, max(1, math.floor(freedom)))
    margin = min(margin, _WIDEST)
    low, high = ratio * math.exp(-margin) - 1, ratio * math.exp(margin) - 1
    return Estimate(value=ratio - 1, low=low, high=high, unit="of the step before")


def _relative_error(column: Sequence[float]) -> tuple[float, int]:
    """The squared standard error of the mean, relative to it, and how many values it rests on."""
    values = _batches(column)
    mean = fmean(values)
    return (variance(values) / len(values) / mean**2 if mean > 0 else 0.0), len(values)


def _batches(column: Sequence[float]) -> list[float]:
    if len(column) < 2 * _BATCHES:
        return list(column)
    edges = [len(column) * it // _BATCHES for it in range(_BATCHES + 1)]
    return [fmean(column[start:end]) for start, end in pairwise(edges)]
