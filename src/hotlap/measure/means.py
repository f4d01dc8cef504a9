"""The relative difference between the means of two columns of steps, with an interval.

The interval covers only the variation between steps within a launch. Two launches of the same code differ by more: see
:data:`RUN_SPREAD`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, variance

from hotlap.measure.student import quantile
from hotlap.records import Estimate

RUN_SPREAD = 0.06
"""The largest relative difference between the step times of two launches of the same code, measured on a shared machine
(2 to 6 %). A smaller difference between two single launches is not evidence of a change."""

SAME_WORK_SPREAD = 0.25
"""The same for profiled launches that do the same work: two runs of one configuration differed by up to 13 %, since a
profiler slows the host down, by a varying amount. This holds for quiet machines; with busy cores, half of the pairs
among ten launches differed by 45 % or more."""

_WIDEST = 10.0
"""The largest half-width of an interval, in logarithms: a factor of 22,000, which means unknown."""

_CONFIDENCE = 0.95
_BATCHES = 8


def relative_change(before: Sequence[float], after: Sequence[float]) -> Estimate | None:
    """``mean(after) / mean(before) - 1`` with a 95 % interval; None with fewer than two steps on either side, or if
    steps take no time.

    Neighbouring steps are correlated, so from sixteen steps on the means of eight batches of steps are used instead
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
    """The squared relative standard error of the mean, and the number of values behind it."""
    values = _batches(column)
    mean = fmean(values)
    return (variance(values) / len(values) / mean**2 if mean > 0 else 0.0), len(values)


def _batches(column: Sequence[float]) -> list[float]:
    if len(column) < 2 * _BATCHES:
        return list(column)
    edges = [len(column) * it // _BATCHES for it in range(_BATCHES + 1)]
    return [fmean(column[start:end]) for start, end in pairwise(edges)]
