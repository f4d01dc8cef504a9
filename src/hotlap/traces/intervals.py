"""Sets of time as sorted, disjoint, half-open intervals of integer nanoseconds.

Plain lists and loops: what a vectorising library would save on a usual trace is less than what importing it costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate
from operator import sub
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]


class Intervals:
    """A set of time. ``starts`` and ``ends`` are sorted, every end is after its start, and before the next start."""

    __slots__ = ("_lengths", "ends", "starts")

    def __init__(self, starts: list[int], ends: list[int]) -> None:
        self.starts = starts
        self.ends = ends
        self._lengths: list[int] = []

    @property
    def total(self) -> int:
        """How long they are together."""
        return sum(self.ends) - sum(self.starts)

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[Span]:
        return zip(self.starts, self.ends, strict=True)

    def before(self, moment: int) -> int:
        """The length of the set before a moment."""
        if not self._lengths:
            self._lengths = [0, *accumulate(map(sub, self.ends, self.starts))]
        begun = bisect_right(self.starts, moment)
        return self._lengths[begun] - max(0, self.ends[begun - 1] - moment) if begun else 0

    def within(self, start: int, end: int) -> int:
        """The length of the set within a window."""
        return self.before(end) - self.before(start)


def nothing() -> Intervals:
    """The empty set."""
    return Intervals([], [])


def union(spans: Iterable[Span]) -> Intervals:
    """The set that any spans cover; they may overlap, be empty, and come in any order."""
    return merged(sorted(spans))


def merged(spans: Iterable[Span]) -> Intervals:
    """The same of spans that come in the order of their starts."""
    starts: list[int] = []
    ends: list[int] = []
    reached = None
    for start, end in spans:
        if reached is None or start > reached:
            if end > start:
                starts.append(start)
                if reached is not None:
                    ends.append(reached)
                reached = end
        elif end > reached:
            reached = end
    if reached is not None:
        ends.append(reached)
    return Intervals(starts, ends)


def subtraction(one: Intervals, other: Intervals) -> Intervals:
    """What ``one`` covers and ``other`` does not."""
    if not len(one) or not len(other):
        return one
    starts: list[int] = []
    ends: list[int] = []
    for start, end in one:
        position = bisect_right(other.ends, start)
        while position < len(other) and other.starts[position] < end:
            if other.starts[position] > start:
                starts.append(start)
                ends.append(other.starts[position])
            start = other.ends[position]
            position += 1
        if start < end:
            starts.append(start)
            ends.append(end)
    return Intervals(starts, ends)


def outside(spans: Iterable[Span], these: Intervals) -> list[Span]:
    """The spans (in the order of their starts) that are not entirely within a set."""
    starts, ends = these.starts, these.ends
    count, position = len(these), 0
    found: list[Span] = []
    for start, end in spans:
        while position < count and ends[position] <= start:
            position += 1
        if position == count or starts[position] > start or ends[position] < end:
            found.append((start, end))
    return found


def overlaps(windows: Intervals, these: Intervals) -> Iterator[tuple[int, int]]:
    """Find the windows that overlap a set: the window's index and the overlap's length.

    A window is named once for every interval that reaches into it.
    """
    starts, ends = windows.starts, windows.ends
    count = len(windows)
    first = 0
    for start, end in these:
        first = bisect_right(ends, start, first)
        index = first
        while index < count and starts[index] < end:
            yield index, min(end, ends[index]) - max(start, starts[index])
            index += 1


def held(windows: Intervals, these: Intervals) -> list[int]:
    """How much each of the windows holds of a set."""
    starts, ends = these.starts, these.ends
    count, first = len(these), 0
    found: list[int] = []
    for start, end in windows:
        while first < count and ends[first] <= start:
            first += 1
        total, position = 0, first
        while position < count and starts[position] < end:
            total += ends[position] if ends[position] < end else end
            total -= starts[position] if starts[position] > start else start
            position += 1
        found.append(total)
    return found
