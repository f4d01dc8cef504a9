"""Detect a column of measurements that keeps rising: a robust slope, and a test for its shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import median

FEWEST_ROWS_FOR_GROWTH = 12
_MOST_ROWS = 200
_FEWEST_ROWS = 9
_CERTAINTY = 3.0
_SHARE_OF_THE_RISE = 0.35
"""A straight line rises equally in both halves, a level that settles mostly in the first, a jump in only one."""


def theil_sen_slope(column: Sequence[float]) -> float:
    """The median of the slopes between all pairs of rows (Theil 1950, Sen 1968), per row; 29 % may be outliers.

    A column of more than 200 rows is thinned out evenly. Raises :class:`ValueError` for fewer than two rows.
    """
    if len(column) < 2:
        raise ValueError(f"A slope needs two rows, not {len(column)}.")
    return median((late - early) / (b - a) for (a, early), (b, late) in _pairs(column))


def keeps_rising(column: Sequence[float]) -> bool:
    """Whether each third of the column is above the one before it, by about as much, and significantly.

    The thirds are compared by their medians, so that a sawtooth or a few outliers do not count. A level that settles or
    jumps once does not keep rising; nor does a column of fewer than nine rows, nor one in which chance may order as
    many pairs of rows (Mann 1945, Kendall 1948: three standard deviations).
    """
    if len(column) < _FEWEST_ROWS:
        return False
    size = len(column) // 3
    first, second, third = median(column[:size]), median(column[size:-size]), median(column[-size:])
    rise = third - first
    steadily = rise > 0 and min(second - first, third - second) >= _SHARE_OF_THE_RISE * rise
    return steadily and _mann_kendall(column) >= _CERTAINTY


def settled_growth(column: Sequence[float]) -> float:
    """By how much the column rises per row once its first quarter is left out; 0 where it does not keep rising.

    In the first quarter optimizers and caches take their share. A column of fewer than twelve rows shows no growth.
    """
    settled = column[len(column) // 4 :]
    if len(column) < FEWEST_ROWS_FOR_GROWTH or not keeps_rising(settled):
        return 0.0
    return max(0.0, theil_sen_slope(settled))


def _mann_kendall(column: Sequence[float]) -> float:
    """Rising pairs of rows minus falling ones, in standard deviations of a column in random order."""
    ordered = sum((late > early) - (late < early) for (_, early), (_, late) in _pairs(column))
    rows = len(range(0, len(column), _stride(column)))
    return ordered / math.sqrt(rows * (rows - 1) * (2 * rows + 5) / 18)


def _pairs(column: Sequence[float]) -> Iterator[tuple[tuple[int, float], tuple[int, float]]]:
    """All pairs of rows with their numbers, the earlier row first; a long column is thinned out."""
    return combinations(list(enumerate(column))[:: _stride(column)], 2)


def _stride(column: Sequence[float]) -> int:
    return max(1, math.ceil(len(column) / _MOST_ROWS))
