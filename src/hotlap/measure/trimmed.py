"""The mean of rounds, without extreme ones if there is one that chance does not make.

Processors change their clock, and neighbours come and go. A round in which that happens compares blocks at different
speeds: where a clock drops by a quarter, one round of eight moves their mean by 3 %. Sources: Hampel, *The influence
curve and its role in robust estimation* (Journal of the American Statistical Association, 1974) for what is extreme;
Tukey and McLaughlin, *Less vulnerable confidence and significance procedures for location based on a single sample*
(Sankhya A, 1963) and Yuen, *The two-sample trimmed t for unequal population variances* (Biometrika, 1974) for the mean
without it, whose interval is as wide as the values that remain make it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, variance
from typing import NamedTuple

_SHARE = 0.15
"""Of the values, at each end: one of seven, two of fourteen, and none of fewer than seven."""

_EXTREME = 6.0
"""Standard deviations from the median, estimated from the median deviation: of eight values of a normal distribution
one is so far away in 3 % of all cases."""

_NORMAL = 1.4826
"""The standard deviation of a normal distribution as a multiple of its median absolute deviation."""


class Mean(NamedTuple):
    """A mean, its standard error, and the degrees of freedom of Student's distribution around it."""

    value: float
    standard_error: float
    degrees: int


def mean(values: Sequence[float]) -> Mean:
    """The mean of two values at least: of all of them or, if one is extreme, of those between the smallest and the
    largest."""
    count, cut = len(values), _cut(values)
    ordered = sorted(values)
    kept = ordered[cut : count - cut]
    winsorised = [min(max(it, kept[0]), kept[-1]) for it in ordered]
    standard_error = math.sqrt((count - 1) * variance(winsorised) / (len(kept) * (len(kept) - 1)))
    return Mean(fmean(kept), standard_error, len(kept) - 1)


def _cut(values: Sequence[float]) -> int:
    """How many values are left out at each end."""
    middle = median(values)
    usual = _NORMAL * median(abs(it - middle) for it in values)
    is_disturbed = any(abs(it - middle) > _EXTREME * usual for it in values)
    return int(_SHARE * len(values)) if is_disturbed else 0
