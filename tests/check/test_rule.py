"""How often the rule is wrong, and what its interval of a share of a recorded gain covers."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.measure import speed
from hotlap.procedures.check.rule import analyse, decide, limit_of, share_of
from hotlap.records import CheckVerdict, Estimate, RecordedGain, Replicate, Run

DELTA = 0.05


def draw(random_numbers: random.Random, ratio: float, launch_noise: float) -> Replicate:
    """One replicate of 8 rounds: the past twice and the present, whose steps take ``ratio`` times as long."""
    rows = []
    for factor in (1.0, 1.0, ratio):
        level = factor * math.exp(random_numbers.gauss(0.0, launch_noise))
        rows.append(tuple(level * math.exp(random_numbers.gauss(0.0, 0.02)) for _ in range(8)))
    return Replicate(runs=(Run(),) * 3, rounds=tuple(rows))


def verdict_of(replicates: Sequence[Replicate], recorded: RecordedGain | None = None) -> CheckVerdict:
    """The verdict of a check without a limit of replicates."""
    for analysis in speed.ANALYSES:
        verdict, *_ = analyse(replicates[: analysis.replicates], recorded, DELTA)
        if verdict != "inconclusive":
            return verdict
    return "inconclusive"


def verdicts(ratio: float, launch_noise: float, checks: int, seed: int = 0) -> Counter[CheckVerdict]:
    numbers = random.Random(seed)
    return Counter(verdict_of([draw(numbers, ratio, launch_noise) for _ in range(8)]) for _ in range(checks))


@pytest.mark.parametrize("launch_noise", [0.005, 0.02, 0.06])
def test_the_two_errors_are_as_rare_as_promised(launch_noise: float) -> None:
    """2.5 % and 5 % of 300 checks are 7.5 and 15; the limits are three standard deviations above."""
    unchanged = verdicts(1.0, launch_noise, 300)
    assert unchanged["failed"] <= 15
    slower_by_delta = verdicts(1 + DELTA, launch_noise, 300)
    assert slower_by_delta["passed"] <= 26


def test_what_is_plain_is_decided() -> None:
    assert verdicts(1.0, 0.01, 100)["passed"] >= 90
    assert verdicts(1.15, 0.01, 100)["failed"] >= 90


def test_the_rule() -> None:
    limit = limit_of(DELTA)
    slow = Estimate(value=0.9, low=0.88, high=0.92)
    assert decide(slow, 0.89, DELTA, agrees=True) == "failed"
    assert decide(slow, 0.89, DELTA, agrees=False) == "inconclusive"
    assert decide(Estimate(value=0.9, low=0.8, high=1.01), 0.82, DELTA, agrees=True) == "inconclusive"
    a_little_slow = Estimate(value=0.97, low=0.96, high=0.98)
    assert decide(a_little_slow, 0.961, DELTA, agrees=True) == "passed", "slower for certain, and by less than counts"
    assert decide(a_little_slow, limit, DELTA, agrees=True) == "inconclusive"


positive = st.floats(min_value=0.2, max_value=20.0)
widths = st.floats(min_value=1e-6, max_value=0.5)


@given(today=positive, then=positive, wide=widths, wide_then=widths, replicates=st.integers(min_value=2, max_value=12))
def test_the_share_of_a_recorded_gain(
    today: float, then: float, wide: float, wide_then: float, replicates: int
) -> None:
    now = Estimate(value=today, low=today * math.exp(-wide), high=today * math.exp(wide))
    speedup = Estimate(value=then, low=then * math.exp(-wide_then), high=then * math.exp(wide_then))
    recorded = RecordedGain(speedup=speedup, confidence=0.95, replicates=replicates)
    found = share_of(now, recorded, 0.95)
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(today / then)
    width = math.log(found.high / found.value)
    assert width == pytest.approx(math.hypot(wide, wide_then)), "both are uncertain, and independently so"
    assert share_of(now, recorded, 0.99).low <= found.low, "the recorded interval grows with the confidence"


def test_the_share_covers_the_truth() -> None:
    """Both gains are measured again and are truly the same: the share's interval must hold 1 in 95 % of cases."""
    numbers = random.Random(3)
    held = 0
    for _ in range(300):
        then, now = ([draw(numbers, 0.6, 0.03) for _ in range(5)] for _ in range(2))
        first, second = (
            speed.compare(*([it.rounds[arm] for it in replicates] for arm in range(3)), delta=DELTA)
            for replicates in (then, now)
        )
        recorded = RecordedGain(speedup=first.speedup, confidence=first.confidence, replicates=5)
        share = share_of(second.speedup, recorded, 0.95)
        held += share.low <= 1 <= share.high
    assert held >= 0.92 * 300
