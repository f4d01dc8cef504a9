"""What a candidate needs of memory: intervals over sets, and what may be claimed of them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.peaks import DELTA, compare_peaks
from hotlap.records import Run, TurnSet

MIB = 2**20


def sets(*rows: tuple[int, int, int], device: bool = True) -> list[TurnSet]:
    """Each row is the peaks of the baseline, of its repeat and of the candidate, in MiB."""
    name = "device_peak_bytes" if device else "host_peak_bytes"
    return [TurnSet(runs=tuple(Run(**{name: it * MIB}) for it in row), rounds=((0.1,),) * 3) for row in rows]  # type: ignore[arg-type]


def verdict(*rows: tuple[int, int, int]) -> str:
    (found,) = compare_peaks(sets(*rows), confidence=0.95)
    return found.verdict


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1000, 1000, 500)] * 3, "less"),
        ([(1000, 1000, 1600)] * 3, "more"),
        ([(1000, 1000, 1000)] * 3, "no-effect"),
        ([(1000, 1000, 990)] * 3, "no-effect"),
        ([(1000, 1000, 985), (1000, 1000, 975)], "inconclusive"),
        ([(1000, 1010, 400), (1000, 1000, 1500), (1000, 1000, 900)], "inconclusive"),
        # A baseline that needs a tenth more when it is launched again says nothing of a twentieth.
        ([(1000, 1100, 950)] * 3, "inconclusive"),
        # One that differs by a block of the allocator's does not matter.
        ([(1000, 1001, 500)] * 3, "less"),
    ],
)
def test_what_is_claimed(rows: list[tuple[int, int, int]], expected: str) -> None:
    assert verdict(*rows) == expected


def test_levels_and_ratio() -> None:
    (found,) = compare_peaks(sets((800, 800, 400), (1000, 1000, 500), (1250, 1250, 625)), confidence=0.9)
    assert found.memory == "device" and found.sets == 3 and found.confidence == 0.9
    assert found.ratio.value == pytest.approx(0.5)
    assert found.ratio.low == pytest.approx(0.5) and found.ratio.high == pytest.approx(0.5)
    assert found.baseline_bytes.value == pytest.approx(1000 * MIB)
    assert found.baseline_bytes.low < 1000 * MIB < found.baseline_bytes.high
    assert found.candidate_bytes.unit == "B"


def test_each_memory_is_compared_by_itself() -> None:
    runs = (Run(device_peak_bytes=it, host_peak_bytes=2 * it) for it in (100, 100, 50))
    both = [TurnSet(runs=tuple(runs), rounds=((0.1,),) * 3)] * 2
    assert [it.memory for it in compare_peaks(both, confidence=0.95)] == ["device", "host"]
    assert [it.memory for it in compare_peaks(sets((5, 5, 5), (5, 5, 5), device=False), confidence=0.95)] == ["host"]


def test_one_set_or_an_unknown_peak_says_nothing() -> None:
    assert compare_peaks(sets((100, 100, 50)), confidence=0.95) == ()
    assert compare_peaks(sets((100, 100, 50), (100, 100, 0)), confidence=0.95) == ()


peak = st.integers(1, 10**6)


@given(st.lists(st.tuples(peak, peak, peak), min_size=2, max_size=8))
def test_a_claim_is_never_against_its_own_interval(rows: list[tuple[int, int, int]]) -> None:
    (found,) = compare_peaks(sets(*rows), confidence=0.95)
    assert found.ratio.low <= found.ratio.value <= found.ratio.high or math.isclose(found.ratio.low, found.ratio.high)
    if found.verdict == "less":
        assert found.ratio.high < 1
    if found.verdict == "more":
        assert found.ratio.low > 1
    if found.verdict == "no-effect":
        assert found.ratio.high < 1 + DELTA


@given(st.lists(st.tuples(peak, peak, peak), min_size=2, max_size=8))
def test_the_other_way_round_it_is_the_other_claim(rows: list[tuple[int, int, int]]) -> None:
    there = verdict(*[(baseline, baseline, candidate) for baseline, _, candidate in rows])
    back = verdict(*[(candidate, candidate, baseline) for baseline, _, candidate in rows])
    assert back == {"less": "more", "more": "less"}.get(there, there)
