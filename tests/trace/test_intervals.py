"""Interval arithmetic against the set of all nanoseconds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hotlap.trace.intervals import Intervals, intersection, subtraction, union

Spans = list[tuple[int, int]]
spans = st.lists(
    st.tuples(st.integers(-30, 30), st.integers(0, 12)).map(lambda it: (it[0], it[0] + it[1])), max_size=12
)


def build(these: Spans) -> Intervals:
    return union(np.array([it[0] for it in these], dtype=np.int64), np.array([it[1] for it in these], dtype=np.int64))


def moments(these: Spans) -> set[int]:
    return {moment for start, end in these for moment in range(start, end)}


def covered(intervals: Intervals) -> set[int]:
    return moments(list(zip(intervals.starts.tolist(), intervals.ends.tolist(), strict=True)))


def assert_well_formed(intervals: Intervals) -> None:
    assert (intervals.ends > intervals.starts).all()
    assert (intervals.starts[1:] > intervals.ends[:-1]).all()


@given(spans)
def test_union_covers_what_any_span_covers(these: Spans) -> None:
    found = build(these)
    assert_well_formed(found)
    assert covered(found) == moments(these)
    assert found.total == len(moments(these))


@given(spans, spans)
def test_intersection_and_subtraction_are_those_of_sets(one: Spans, other: Spans) -> None:
    both = intersection(build(one), build(other))
    rest = subtraction(build(one), build(other))
    assert_well_formed(both)
    assert_well_formed(rest)
    assert covered(both) == moments(one) & moments(other)
    assert covered(rest) == moments(one) - moments(other)


@given(spans, st.lists(st.tuples(st.integers(-40, 50), st.integers(0, 40)), max_size=6))
def test_time_within_windows(these: Spans, windows: list[tuple[int, int]]) -> None:
    starts = np.array([it[0] for it in windows], dtype=np.int64)
    ends = starts + np.array([it[1] for it in windows], dtype=np.int64)
    expected = [len(moments(these) & set(range(start, end))) for start, end in zip(starts, ends, strict=True)]
    assert build(these).within(starts, ends).tolist() == expected


def test_times_keep_every_digit_of_64_bits() -> None:
    start = 1_751_410_836_000_000_001
    found = build([(start, start + 5), (start + 5, start + 7), (start + 9, start + 10)])
    assert found.starts.tolist() == [start, start + 9]
    assert found.total == 8
