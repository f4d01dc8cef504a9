"""Loss curves to look at: what is kept of two runs."""

from __future__ import annotations

import math

import pytest

from hotlap.measure.parity.curves import MOST_ROWS, loss_curves
from hotlap.measure.parity.losses import distance, moving_average, pair
from hotlap.records import GateResult, Parity, Run, Steps


def run(losses: list[float | None]) -> Run:
    return Run(steps=Steps(loss=tuple(losses)))


def within(limit: float | None) -> Parity:
    return Parity(verdict="within", proof="rounding", gates=(GateResult(gate="G3", passed=True, limit=limit),))


def falling(steps: int, shift: float = 0.0) -> list[float | None]:
    return [4 / (1 + it / 50) + shift * math.sin(it) for it in range(steps)]


def test_all_steps_of_a_short_comparison_are_kept() -> None:
    found = loss_curves(run(falling(50)), run(falling(50, 0.001)), within(0.001))
    assert found is not None
    assert (found.compared_steps, found.every, found.steps[0], found.steps[-1]) == (50, 1, 1, 50)
    assert list(found.baseline_average) == moving_average([it for it in falling(50) if it is not None])


def test_the_largest_drawn_difference_is_the_one_that_was_judged() -> None:
    one, other = run(falling(200)), run(falling(200, 0.01))
    found = loss_curves(one, other, within(0.002))
    assert found is not None
    columns = zip(found.baseline_average, found.plan_average, found.allowed, strict=True)
    drawn = max(abs(plan - baseline) / allowed * 0.002 for baseline, plan, allowed in columns)
    assert drawn == pytest.approx(distance(pair(one, other)))


def test_long_curves_are_thinned_and_say_so() -> None:
    found = loss_curves(run(falling(3000)), run(falling(3000)), within(0.001))
    assert found is not None
    assert (found.compared_steps, found.every) == (3000, 8)
    assert len(found.steps) == len(found.plan) == len(found.allowed) <= MOST_ROWS
    whole = moving_average([it for it in falling(3000) if it is not None])
    assert found.baseline_average[-1] == whole[found.steps[-1] - 1], "averaged before it is thinned"


def test_steps_whose_loss_was_not_read_in_both_are_left_out() -> None:
    found = loss_curves(run([1.0, None, 3.0, 4.0]), run([1.0, 2.0, math.nan, 4.0]), None)
    assert found is not None
    assert (found.steps, found.baseline, found.allowed) == ((1, 4), (1.0, 4.0), ())


@pytest.mark.parametrize("losses", [[], [1.0], [None, None, 2.0]])
def test_a_single_point_is_no_curve(losses: list[float | None]) -> None:
    assert loss_curves(run(losses), run(losses), within(0.001)) is None
