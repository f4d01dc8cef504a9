"""Whether a column of measurements rises from row to row: a slope that outliers cannot bend, and a test of its form."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

_MOST_ROWS = 200
_SHARE_OF_THE_RISE = 0.35
"""Of its rise a straight line gives half to each half, a level that settles most to the first, a jump all to one."""


def theil_sen_slope(column: Sequence[float]) -> float:
    """The median of the slopes between all pairs of rows, a row (Theil 1950, Sen 1968); 29 % of them may be outliers.

    A column of more than 200 rows is thinned out evenly. Raises :class:`ValueError` for fewer than two rows.
    """
    if len(column) < 2:
        raise ValueError(f"A slope needs two rows, not {len(column)}.")
    stride = -(-len(column) // _MOST_ROWS)
    rows = list(enumerate(column))[::stride]
    return median((late - early) / (b - a) for (a, early), (b, late) in combinations(rows, 2))


def keeps_rising(column: Sequence[float]) -> bool:
    """Whether each third of the column lies above the one before it, by about as much each time.

    The thirds are compared by their medians, so that a sawtooth or a few outliers do not count. A level that settles,
    or that jumps once, does not keep rising; nor does a column of fewer than nine rows.
    """
    if len(column) < 9:
        return False
    size = len(column) // 3
    first, second, third = median(column[:size]), median(column[size:-size]), median(column[-size:])
    rise = third - first
    return rise > 0 and min(second - first, third - second) >= _SHARE_OF_THE_RISE * rise
