"""Percentiles of calls, with intervals that hold as often as they say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure.latency import SHARES, latency, percentile, timed_calls
from hotlap.records import Block, Replicate, Run, ScriptFacts, Steps

_SECONDS = st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=300).map(sorted)


@given(calls=_SECONDS, share=st.sampled_from(SHARES), confidence=st.sampled_from([0.9, 0.95, 0.99]))
def test_an_interval_holds_its_value_and_is_made_of_calls(calls: list[float], share: float, confidence: float) -> None:
    found = percentile(calls, share, confidence)
    if found is not None:
        assert found.low <= found.value <= found.high
        assert {found.low, found.value, found.high} <= set(calls)
        assert sum(it <= found.value for it in calls) >= share * len(calls) - 1e-9


@pytest.mark.parametrize(("share", "fewest"), [(0.5, 6), (0.9, 36), (0.99, 368)])
def test_no_interval_with_too_few_calls(share: float, fewest: int) -> None:
    """The published numbers of samples below which no two-sided interval of 95 % exists: n with p^n <= 2.5 %."""
    calls = [float(it) for it in range(fewest)]
    assert percentile(calls, share, 0.95) is not None
    assert percentile(calls[:-1], share, 0.95) is None


def test_intervals_cover_the_true_percentile() -> None:
    draw = random.Random(3)
    hits = 0
    for _ in range(400):
        found = percentile(sorted(draw.random() for _ in range(120)), 0.9, 0.95)
        assert found is not None
        hits += found.low <= 0.9 <= found.high
    assert hits >= 0.93 * 400


def test_only_timed_calls_count() -> None:
    blocks = (
        Block(first_step=1, steps=2, samples=2, wall_seconds=1),
        Block(first_step=4, steps=3, samples=3, wall_seconds=1),
    )
    steps = Steps(wall_seconds=(1.0,) * 7, phases=(("forward", tuple(float(it) for it in range(7))),))
    run = Run(facts=ScriptFacts(step_source="call"), steps=steps, blocks=blocks, warm_up_blocks=1)
    assert list(timed_calls(run)) == [4.0, 5.0, 6.0]
    found = latency([Replicate(runs=(run,), rounds=((1.0,),))], 0, confidence=0.95)
    assert found is not None and (found.calls, found.worst_seconds, found.percentiles) == (3, 6.0, ())
    training = Run(facts=ScriptFacts(), steps=steps, blocks=blocks)
    assert latency([Replicate(runs=(training,), rounds=((1.0,),))], 0, confidence=0.95) is None
