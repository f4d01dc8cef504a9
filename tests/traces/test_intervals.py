"""Interval arithmetic, compared with sets of all nanoseconds."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hotlap.traces.intervals import Intervals, held, merged, outside, overlaps, subtraction, union

Spans = list[tuple[int, int]]
spans = st.lists(
    st.tuples(st.integers(-30, 30), st.integers(0, 12)).map(lambda it: (it[0], it[0] + it[1])), max_size=12
)


def moments(these: Spans) -> set[int]:
    return {moment for start, end in these for moment in range(start, end)}


def covered(intervals: Intervals) -> set[int]:
    return moments(list(intervals))


def assert_well_formed(intervals: Intervals) -> None:
    assert all(start < end for start, end in intervals)
    assert all(end < start for (_, end), (start, _) in pairwise(intervals))


@given(spans)
def test_union_matches_set_union(these: Spans) -> None:
    for found in (union(these), merged(sorted(these))):
        assert_well_formed(found)
        assert covered(found) == moments(these)
        assert found.total == len(moments(these))


@given(spans, spans)
def test_subtraction_matches_set_difference(one: Spans, other: Spans) -> None:
    rest = subtraction(union(one), union(other))
    assert_well_formed(rest)
    assert covered(rest) == moments(one) - moments(other)


@given(spans, st.integers(-40, 50), st.integers(0, 40))
def test_time_within_a_window(these: Spans, start: int, length: int) -> None:
    inside = moments(these) & set(range(start, start + length))
    assert union(these).within(start, start + length) == len(inside)


@given(spans, spans)
def test_time_within_each_of_many_windows(these: Spans, others: Spans) -> None:
    windows = union(others)
    found = [0] * len(windows)
    for index, shared in overlaps(windows, union(these)):
        assert shared > 0
        found[index] += shared
    assert found == [len(moments(these) & set(range(start, end))) for start, end in windows]
    assert held(windows, union(these)) == found


@given(spans, spans)
def test_spans_outside_of_the_intervals(these: Spans, others: Spans) -> None:
    found = outside(sorted(others), union(these))
    assert set(found) <= set(others)
    assert all(moments([it]) - moments(these) for it in found if it[0] < it[1])
    assert all(moments([it]) <= moments(these) for it in set(others) - set(found))


def test_times_keep_every_digit_of_64_bits() -> None:
    start = 1_751_410_836_000_000_001
    found = union([(start, start + 5), (start + 5, start + 7), (start + 9, start + 10)])
    assert found.starts == [start, start + 9]
    assert found.total == 8
