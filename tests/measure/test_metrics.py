"""The metrics of candidates besides their speed: intervals over replicates, and what may be claimed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.metrics.api import all_metrics, compare_metrics
from hotlap.records import Replicate, Run

MIB = 2**20


def replicates(*rows: tuple[int, int, int], device: bool = True) -> list[Replicate]:
    """Each row is the peaks of the baseline, of its repeat and of the candidate, in MiB."""
    name = "device_peak_bytes" if device else "host_peak_bytes"
    return [Replicate(runs=tuple(Run(**{name: it * MIB}) for it in row), rounds=((0.1,),) * 3) for row in rows]  # type: ignore[arg-type]


def verdict(*rows: tuple[int, int, int]) -> str:
    (found,) = compare_metrics(replicates(*rows), confidence=0.95)
    return found.verdict


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(1000, 1000, 500)] * 3, "better"),
        ([(1000, 1000, 1600)] * 3, "worse"),
        ([(1000, 1000, 1000)] * 3, "no-effect"),
        ([(1000, 1000, 990)] * 3, "no-effect"),
        ([(1000, 1000, 985), (1000, 1000, 975)], "inconclusive"),
        ([(1000, 1010, 400), (1000, 1000, 1500), (1000, 1000, 900)], "inconclusive"),
        # A baseline that needs a tenth more when it is launched again says nothing of a twentieth.
        ([(1000, 1100, 950)] * 3, "inconclusive"),
        # One that differs by a block of the allocator's does not matter.
        ([(1000, 1001, 500)] * 3, "better"),
    ],
)
def test_what_is_claimed(rows: list[tuple[int, int, int]], expected: str) -> None:
    assert verdict(*rows) == expected


def test_levels_and_ratio() -> None:
    (found,) = compare_metrics(replicates((800, 800, 400), (1000, 1000, 500), (1250, 1250, 625)), confidence=0.9)
    assert found.metric == "device_peak_bytes" and found.replicates == 3 and found.confidence == 0.9
    assert found.ratio.value == pytest.approx(0.5)
    assert found.ratio.low == pytest.approx(0.5) and found.ratio.high == pytest.approx(0.5)
    assert found.baseline.value == pytest.approx(1000 * MIB)
    assert found.baseline.low < 1000 * MIB < found.baseline.high
    assert found.candidate.unit == "B"


def test_each_memory_is_compared_by_itself() -> None:
    runs = (Run(device_peak_bytes=it, host_peak_bytes=2 * it) for it in (100, 100, 50))
    both = [Replicate(runs=tuple(runs), rounds=((0.1,),) * 3)] * 2
    assert [it.metric for it in compare_metrics(both, confidence=0.95)] == ["device_peak_bytes", "host_peak_bytes"]
    assert [it.metric for it in compare_metrics(replicates((5, 5, 5), (5, 5, 5), device=False), confidence=0.95)] == [
        "host_peak_bytes"
    ]


def test_one_replicate_or_an_unknown_peak_says_nothing() -> None:
    assert compare_metrics(replicates((100, 100, 50)), confidence=0.95) == ()
    assert compare_metrics(replicates((100, 100, 50), (100, 100, 0)), confidence=0.95) == ()


peak = st.integers(1, 10**6)


@given(st.lists(st.tuples(peak, peak, peak), min_size=2, max_size=8))
def test_a_claim_is_never_against_its_own_interval(rows: list[tuple[int, int, int]]) -> None:
    (found,) = compare_metrics(replicates(*rows), confidence=0.95)
    assert found.ratio.low <= found.ratio.value <= found.ratio.high or math.isclose(found.ratio.low, found.ratio.high)
    if found.verdict == "better":
        assert found.ratio.high < 1
    if found.verdict == "worse":
        assert found.ratio.low > 1
    if found.verdict == "no-effect":
        assert found.ratio.high < 1 + all_metrics()["device_peak_bytes"].smallest_change


@given(st.lists(st.tuples(peak, peak, peak), min_size=2, max_size=8))
def test_the_other_way_round_it_is_the_other_claim(rows: list[tuple[int, int, int]]) -> None:
    there = verdict(*[(baseline, baseline, candidate) for baseline, _, candidate in rows])
    back = verdict(*[(candidate, candidate, baseline) for baseline, _, candidate in rows])
    assert back == {"better": "worse", "worse": "better"}.get(there, there)
