"""The rate of arrivals that keeps a p99: against formulas of queues, and what must hold for any calls."""

from __future__ import annotations

import math
import random
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hotlap.measure.open_loop import FEWEST_CALLS, MOST_BUSY, compare_loads, largest_utilisation, waits
from hotlap.records import Block, Replicate, Run, ScriptFacts, Steps

_TIMES = st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 5.0)), min_size=1, max_size=40)


@given(times=_TIMES)
def test_waits_are_those_of_the_recursion(times: list[tuple[float, float]]) -> None:
    expected, wait = [], 0.0
    for service, between in times:
        expected.append(wait)
        wait = max(0.0, wait + service - between)
    services, gaps = (np.array(it) for it in zip(*times, strict=True))
    np.testing.assert_allclose(waits(services, gaps), expected, atol=1e-9)


@given(times=_TIMES, sooner=st.floats(0.1, 1.0))
def test_no_wait_is_shorter_if_calls_arrive_sooner(times: list[tuple[float, float]], sooner: float) -> None:
    services, gaps = (np.array(it) for it in zip(*times, strict=True))
    assert (waits(services, gaps * sooner) >= waits(services, gaps) - 1e-9).all()


@pytest.mark.parametrize("limit", [0.08, 0.2, 0.5])
def test_random_times_give_the_rate_of_an_m_m_1_queue(limit: float) -> None:
    """Latency is exponential with the rate ``1 / mean - arrivals``, so that its p99 is ``ln 100`` divided by this."""
    draw = random.Random(5)
    calls = [draw.expovariate(100.0) for _ in range(40_000)]
    mean = sum(calls) / len(calls)
    assert largest_utilisation(calls, limit) == pytest.approx(1 - math.log(100) * mean / limit, abs=0.015)


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.85])
def test_equal_times_give_the_rate_of_an_m_d_1_queue(busy: float) -> None:
    """Crommelin's distribution of waits gives the p99 at this rate, and this p99 must give the rate."""
    low, high = 0.0, 100.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if _waits_at_most(middle, busy) >= 0.99 else (middle, high)
    assert largest_utilisation([0.02] * FEWEST_CALLS, 0.02 * (1 + high)) == pytest.approx(busy, abs=0.01)


def _waits_at_most(time: float, busy: float) -> float:
    """The probability of a wait of at most ``time`` services, in a queue that is ``busy`` with calls of equal length.

    The terms alternate and are large, so that they need many digits.
    """
    with localcontext() as context:
        context.prec = 120
        rate, most = Decimal(busy), Decimal(time)
        whole = Decimal(0)
        for number in range(math.floor(time) + 1):
            power = rate * (number - most)
            whole += power**number / math.factorial(number) * (-power).exp()
        return float((1 - rate) * whole)


_CALLS = st.lists(st.floats(1e-4, 1.0), min_size=3, max_size=30)


@settings(max_examples=8, deadline=None)
@given(calls=_CALLS, factor=st.floats(1.0, 20.0), scale=st.sampled_from([0.5, 4.0]))
def test_more_time_allows_more_and_the_unit_of_time_does_not_matter(
    calls: list[float], factor: float, scale: float
) -> None:
    limit = factor * max(calls)
    found = largest_utilisation(calls, limit)
    assert 0 < found <= MOST_BUSY
    assert largest_utilisation(calls, 2 * limit) >= found
    assert largest_utilisation([scale * it for it in calls], scale * limit) == pytest.approx(found, abs=1e-3)


def test_calls_that_are_too_slow_alone_allow_none() -> None:
    assert largest_utilisation([0.01] * 90 + [0.5] * 10, 0.4) == 0.0
    assert 0 < largest_utilisation([0.01] * 999 + [0.5], 0.4) < 0.5  # a slow call delays those behind it


# -- arms of a trial -------------------------------------------------------------------------------------------------


def run(*calls: float) -> Run:
    steps = Steps(wall_seconds=calls, phases=(("forward", calls),))
    block = Block(first_step=0, steps=len(calls), samples=len(calls), wall_seconds=sum(calls))
    return Run(facts=ScriptFacts(step_source="call"), steps=steps, blocks=(block,))


def replicates(*pairs: tuple[float, float], calls: int = 120) -> list[Replicate]:
    """The seconds of each call of the unmodified model and of the candidate, in launches."""
    return [
        Replicate(runs=(run(*[one] * calls), run(*[one] * calls), run(*[other] * calls)), rounds=((1.0,),) * 3)
        for one, other in pairs
    ]


def test_a_candidate_of_half_the_time_takes_more_than_twice_the_load() -> None:
    """Shorter calls leave more of the limit to wait in."""
    found = compare_loads(replicates((0.010, 0.005), (0.011, 0.0055), (0.0105, 0.0052)), 0.03, confidence=0.95)
    assert found is not None and found.ratio is not None and found.replicates == 3
    assert found.ratio.low > 2.2
    before, after = found.baseline.calls_per_second, found.candidate.calls_per_second
    assert before is not None and after is not None and before.unit == "1/s"
    assert before.low < before.value < before.high < after.low
    assert before.value == pytest.approx(found.baseline.busy / 0.0105, rel=0.02)
    assert found.ratio.value == pytest.approx(after.value / before.value)


def test_why_a_rate_is_unknown() -> None:
    few = compare_loads(replicates((0.01, 0.005), (0.01, 0.005), calls=FEWEST_CALLS - 1), 0.03, confidence=0.95)
    assert few is not None and few.ratio is None
    assert (few.baseline.obstacle, few.candidate.obstacle) == ("too-few-calls", "too-few-calls")
    slow = compare_loads(replicates((0.01, 0.005), (0.01, 0.005)), 0.008, confidence=0.95)
    assert slow is not None and slow.ratio is None
    assert (slow.baseline.obstacle, slow.candidate.obstacle) == ("too-slow", "")
    assert slow.baseline.calls_per_second is None and slow.candidate.calls_per_second is not None
    plenty = compare_loads(replicates((0.01, 0.005), (0.01, 0.005)), 10.0, confidence=0.95)
    assert plenty is not None and plenty.candidate.at_least and plenty.candidate.busy == MOST_BUSY


def test_nothing_is_computed_of_training_steps_or_of_one_launch() -> None:
    assert compare_loads(replicates((0.01, 0.005)), 0.03, confidence=0.95) is None
    training = Run(steps=Steps(wall_seconds=(0.01,) * 200))
    rows = [Replicate(runs=(training, training, training), rounds=((1.0,),) * 3)] * 3
    assert compare_loads(rows, 0.03, confidence=0.95) is None
