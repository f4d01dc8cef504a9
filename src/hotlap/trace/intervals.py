"""Sets of time as sorted, disjoint, half-open intervals of integer nanoseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Times: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Intervals:
    """A set of time. ``starts`` and ``ends`` are sorted, every end lies behind its start, and before the next start."""

    starts: Times
    ends: Times

    @property
    def total(self) -> int:
        """How long they are together."""
        return int((self.ends - self.starts).sum())

    def __len__(self) -> int:
        return len(self.starts)

    def before(self, times: Times) -> Times:
        """How much of the set lies before each of the times."""
        if not len(self):
            return np.zeros(len(times), dtype=np.int64)
        lengths = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(self.ends - self.starts)))
        begun = np.searchsorted(self.starts, times, side="right")
        last = np.maximum(begun - 1, 0)
        unfinished = np.clip(self.ends[last] - times, 0, None)
        return np.where(begun > 0, lengths[begun] - unfinished, 0)

    def within(self, starts: Times, ends: Times) -> Times:
        """How much of the set lies within each of the windows."""
        return self.before(ends) - self.before(starts)


def nothing() -> Intervals:
    """The empty set."""
    return Intervals(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(starts: Times, ends: Times) -> Intervals:
    """The set that any spans cover; they may overlap, be empty, and come in any order."""
    real = ends > starts
    starts, ends = starts[real], ends[real]
    if not len(starts):
        return nothing()
    order = np.argsort(starts, kind="stable")
    starts, reached = starts[order], np.maximum.accumulate(ends[order])
    begins = np.concatenate((np.ones(1, dtype=bool), starts[1:] > reached[:-1]))
    last = np.concatenate((np.flatnonzero(begins)[1:] - 1, np.array([len(starts) - 1])))
    return Intervals(starts[begins], reached[last])


def intersection(one: Intervals, other: Intervals) -> Intervals:
    """What both sets cover."""
    if not len(one) or not len(other):
        return nothing()
    # Of both sets at most one interval each is open at a time, so two open ones are one of each.
    times = np.concatenate((one.starts, other.starts, one.ends, other.ends))
    opened = len(one) + len(other)
    change = np.concatenate((np.ones(opened, dtype=np.int64), np.full(opened, -1, dtype=np.int64)))
    order = np.argsort(times, kind="stable")
    times, count = times[order], np.cumsum(change[order])
    shared = np.flatnonzero(count[:-1] == 2)
    return union(times[shared], times[shared + 1])


def subtraction(one: Intervals, other: Intervals) -> Intervals:
    """What ``one`` covers and ``other`` does not."""
    if not len(one) or not len(other):
        return one
    low = min(int(one.starts[0]), int(other.starts[0])) - 1
    high = max(int(one.ends[-1]), int(other.ends[-1])) + 1
    starts = np.concatenate((np.array([low], dtype=np.int64), other.ends))
    ends = np.concatenate((other.starts, np.array([high], dtype=np.int64)))
    return intersection(one, Intervals(starts, ends))
