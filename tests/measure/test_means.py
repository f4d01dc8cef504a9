"""The change of a mean: its value, an interval with the stated coverage, and no answer without data."""

from __future__ import annotations

import random

import pytest

from hotlap.measure.means import relative_change


def test_the_value_is_the_ratio_of_means() -> None:
    found = relative_change([1.0, 1.2, 0.8], [1.5, 1.7, 1.3])
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert found.low < 0.5 < found.high


def test_steps_that_do_not_vary_leave_no_doubt() -> None:
    found = relative_change([0.1] * 20, [0.11] * 20)
    assert found is not None
    assert (found.low, found.value, found.high) == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize(
    ("before", "after"), [([], []), ([0.1], [0.1] * 9), ([0.1] * 9, [0.1]), ([0.0] * 9, [0.1] * 9)]
)
def test_without_ground_there_is_no_answer(before: list[float], after: list[float]) -> None:
    assert relative_change(before, after) is None


@pytest.mark.parametrize("steps", [4, 12, 40])
def test_the_interval_holds_the_truth_as_often_as_it_says(steps: int) -> None:
    """Of 400 intervals of a true change of 20 %, 95 % hold it; fewer than 91 % would be three deviations below."""
    draw = random.Random(steps)
    held = 0
    for _ in range(400):
        found = relative_change(
            [draw.gauss(1.0, 0.1) for _ in range(steps)], [draw.gauss(1.2, 0.12) for _ in range(steps)]
        )
        assert found is not None
        held += found.low <= 0.2 <= found.high
    assert held >= 0.91 * 400


def test_steps_that_resemble_their_neighbours_widen_it() -> None:
    """Drifting steps carry less information than as many independent ones: the same values in another order leave less
    doubt."""
    drifting = [1.0 + 0.1 * (step // 20 % 2) for step in range(160)]
    mixed = random.Random(0).sample(drifting, len(drifting))
    wide, narrow = relative_change(drifting, [1.0] * 160), relative_change(mixed, [1.0] * 160)
    assert wide is not None and narrow is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
