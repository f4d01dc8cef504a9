"""Costs as shares of the step: bounds, order, and the coverage of the interval."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import (
    MATERIAL,
    SURELY,
    UNIT,
    at_most,
    between,
    exactly,
    is_material,
    is_unguarded,
    observed_share,
    phase_share,
    scaled,
    share_of_steps,
)
from hotlap.evidence import RunEvidence
from hotlap.records import Estimate, PhaseAccount, Steps

seconds = st.floats(min_value=0.0, max_value=1e6, allow_nan=False)
numbers = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False)
rows = st.lists(st.tuples(seconds, seconds), max_size=100)


def assert_share(share: Estimate) -> None:
    assert 0 <= share.low <= share.value <= share.high <= 1
    assert share.unit == UNIT


@given(rows)
def test_a_share_is_in_its_interval_and_within_the_whole(rows: list[tuple[float, float]]) -> None:
    part = [a for a, _ in rows]
    assert_share(share_of_steps(part, [a + b for a, b in rows]))


@given(rows.filter(len))
def test_the_value_is_the_ratio_of_the_sums(rows: list[tuple[float, float]]) -> None:
    part, whole = [a for a, _ in rows], [a + b for a, b in rows]
    expected = sum(part) / sum(whole) if sum(whole) > 0 else 0.0
    assert share_of_steps(part, whole).value == pytest.approx(expected, abs=1e-9)


@given(st.floats(1e-9, 1e6), st.integers(min_value=1, max_value=60), st.floats(min_value=0.0, max_value=1.0))
def test_identical_steps_give_an_interval_of_zero_width(step: float, steps: int, part: float) -> None:
    share = share_of_steps([part * step] * steps, [step] * steps)
    assert share.value == pytest.approx(part, abs=1e-9)
    assert share.high - share.low < 1e-6


def test_fewer_than_sixteen_steps_give_no_interval() -> None:
    uneven = [0.1, 0.5] * 7
    share = share_of_steps(uneven, [1.0] * 14)
    assert share.low == share.value == share.high
    wider = share_of_steps([0.1, 0.5, 0.9] * 6, [1.0] * 18)
    assert wider.low < wider.value < wider.high


def test_an_empty_account_costs_nothing() -> None:
    assert share_of_steps([], []) == exactly(0.0)
    assert share_of_steps([0.0] * 20, [0.0] * 20) == exactly(0.0)


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(ValueError, match="3 and 2 steps"):
        share_of_steps([1.0] * 3, [1.0] * 2)


@pytest.mark.parametrize("correlated", [False, True], ids=["independent", "runs of alike steps"])
def test_the_interval_has_its_nominal_coverage(correlated: bool) -> None:
    """Simulate 400 runs of 96 steps with a known share; batch means handle most autocorrelation."""
    generator = random.Random(7)
    covered = 0
    for _ in range(400):
        part, whole = [], []
        level = 0.0
        for _ in range(96):
            noise = generator.gauss(0, 0.02)
            level = 0.5 * level + noise if correlated else noise
            part.append(0.3 + level)
            whole.append(1.0 + level + generator.gauss(0, 0.05))
        share = share_of_steps(part, whole)
        covered += share.low <= 0.3 <= share.high
    assert covered >= (0.85 if correlated else 0.92) * 400
    assert covered < 400, "an interval that always covers is too wide to say anything"


@given(numbers, numbers, numbers)
def test_intervals_stay_within_the_step(low: float, middle: float, high: float) -> None:
    low, middle, high = sorted((low, middle, high))
    assert_share(between(middle, low, high))


@given(numbers)
def test_a_bound_reaches_down_to_zero(high: float) -> None:
    share = at_most(high)
    assert_share(share)
    assert share.low == 0 and share.value == share.high


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0, 10))
def test_a_scaled_share_is_a_share(a: float, b: float, c: float, factor: float) -> None:
    low, value, high = sorted((a, b, c))
    share = scaled(between(value, low, high), factor)
    assert_share(share)
    assert share.value == pytest.approx(min(1.0, value * factor))


@pytest.mark.parametrize(
    ("value", "low", "expected"),
    [
        (MATERIAL, SURELY, True),
        (MATERIAL - 1e-6, SURELY, False),
        (MATERIAL, SURELY - 1e-6, False),
        (0.5, 0.0, False),
        (0.5, 0.4, True),
    ],
)
def test_a_material_share_is_large_and_beyond_noise(value: float, low: float, expected: bool) -> None:
    assert is_material(between(value, low, 1.0)) is expected


def test_a_bound_is_never_material() -> None:
    assert not is_material(at_most(0.9))


# ---------------------------------------------------------------------------------------------
# Shares of what was measured
# ---------------------------------------------------------------------------------------------

ACCOUNT = PhaseAccount(
    wall=0.1,
    phases=(
        ("data_wait", 0.025),
        ("forward", 0.075),
    ),
)


def test_a_phase_without_rows_has_only_the_accounts_mean() -> None:
    assert phase_share(Profile(account=ACCOUNT), "data_wait") == exactly(0.25)
    assert phase_share(Profile(account=ACCOUNT), "backward") == exactly(0.0)
    assert phase_share(Profile(), "forward") == exactly(0.0)


def test_a_phase_with_rows_has_an_interval_without_the_warm_up() -> None:
    waits = (5.0,) * 6 + (0.02, 0.03) * 20
    steps = Steps(wall_seconds=(9.0,) * 6 + (0.1,) * 40, phases=(("data_wait", waits),))
    share = phase_share(Profile(account=ACCOUNT, steps=steps), "data_wait")
    assert share.value == pytest.approx(0.25)
    assert 0.2 < share.low < 0.25 < share.high < 0.3


def test_columns_of_another_length_are_ignored() -> None:
    steps = Steps(wall_seconds=(0.1,) * 40, phases=(("data_wait", (0.9,) * 12),))
    assert phase_share(Profile(account=ACCOUNT, steps=steps), "data_wait") == exactly(0.25)


def test_an_account_without_phases_gives_no_share() -> None:
    steps = Steps(wall_seconds=(0.1,) * 40, phases=(("data_wait", (0.05,) * 40),))
    whole = Profile(account=PhaseAccount(wall=0.1, phases=(("other", 0.1),)), steps=steps)
    assert phase_share(whole, "data_wait") == exactly(0.0)


@given(seconds, st.floats(min_value=0.0, max_value=1e3, allow_nan=False))
def test_seconds_of_the_observed_steps(spent: float, observed: float) -> None:
    profile = Profile(evidence=RunEvidence(observed_steps=10, observed_seconds=observed))
    assert 0 <= observed_share(profile, spent) <= 1
    assert observed_share(Profile(), spent) == 0


@pytest.mark.parametrize(
    ("observed", "steps", "expected"), [(40, 20, True), (40, 19, False), (41, 21, True), (41, 20, False), (0, 5, False)]
)
def test_half_of_the_steps_counts_as_every_step(observed: int, steps: int, expected: bool) -> None:
    assert is_unguarded(Profile(evidence=RunEvidence(observed_steps=observed)), steps) is expected
