"""The gates G1, G3 and G4 alone: what passes each, what does not, and what is inconclusive."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity_runs import curve, run

from hotlap.measure.parity.learning import equivalence, learning
from hotlap.measure.parity.losses import difference, distance, moving_average, pair, percent
from hotlap.measure.parity.repeatability import repeatability
from hotlap.measure.parity.trajectory import exact_trajectory, trajectory
from hotlap.records import (
    Completed,
    Crashed,
    Run,
)

# -- The distance between two trajectories --------------------------------------------------------

losses = st.lists(st.floats(0.1, 10), min_size=1, max_size=50)


def test_the_moving_average_by_hand() -> None:
    assert moving_average([1.0, 2.0, 2.0]) == pytest.approx([1.0, 1.1, 1.19])


@given(losses)
def test_a_run_is_at_no_distance_from_itself(values: list[float]) -> None:
    assert distance(pair(run(list(values)), run(list(values)))) == 0


@given(st.lists(st.floats(1, 10), min_size=1, max_size=50), st.floats(1.0, 2.0))
def test_the_distance_is_relative(values: list[float], factor: float) -> None:
    got = distance(pair(run(list(values)), run([it * factor for it in values])))
    assert got == pytest.approx(factor - 1, abs=1e-9)


@given(losses, losses, st.floats(0.01, 100))
def test_the_scale_of_a_loss_does_not_matter(one: list[float], other: list[float], factor: float) -> None:
    plain = distance(pair(run(list(one)), run(list(other))))
    scaled = distance(pair(run([it * factor for it in one]), run([it * factor for it in other])))
    assert scaled == pytest.approx(plain, rel=1e-6, abs=1e-12)


@given(losses, losses)
def test_the_sign_of_a_loss_does_not_matter(one: list[float], other: list[float]) -> None:
    plain = distance(pair(run(list(one)), run(list(other))))
    assert distance(pair(run([-it for it in one]), run([-it for it in other]))) == pytest.approx(plain)


def test_rounding_in_a_loss_that_crosses_zero_is_no_finding() -> None:
    crossing: list[float | None] = [math.cos(t / 30) for t in range(300)]
    rounded = [it + 1e-6 for it in crossing if it is not None]
    assert (difference(run(crossing), run([*rounded])) or 0) < 1e-5


def test_a_change_in_a_loss_that_crosses_zero_is_found() -> None:
    crossing = [math.cos(t / 30) for t in range(300)]
    assert (difference(run([*crossing]), run([it * 1.01 for it in crossing])) or 0) > 0.005


def test_rounding_in_a_loss_that_vanishes_is_no_finding() -> None:
    vanishing = [math.exp(-t / 10) for t in range(300)]
    assert (difference(run([*vanishing]), run([it + 1e-7 for it in vanishing])) or 0) < 0.001


def test_losses_of_zero_have_no_finite_distance_to_others() -> None:
    assert distance(pair(run([0.0] * 30), run([0.0] * 30))) == 0
    assert distance(pair(run([0.0] * 30), run([1.0] * 30))) is None


# -- G1 -------------------------------------------------------------------------------------------


def test_a_repeatable_script_passes() -> None:
    got = repeatability(run(curve()), run(curve()))
    assert (got.passed, got.found) == (True, 0.0)
    got = repeatability(run(curve()), run(curve(factor=1.001)))
    assert got.passed is True
    assert got.found == pytest.approx(0.001)


def test_an_unrepeatable_script_does_not() -> None:
    assert repeatability(run(curve()), run(curve(factor=1.05))).passed is False


@pytest.mark.parametrize("again", [[], [None] * 300, curve(10), [*curve(100), math.nan, *curve(100)]])
def test_what_cannot_be_repeated_stays_open(again: list[float | None]) -> None:
    assert repeatability(run(curve()), run(again)).passed is None


# -- G3 -------------------------------------------------------------------------------------------


def test_a_small_change_passes_and_a_large_one_fails() -> None:
    baseline = run(curve())
    assert trajectory(baseline, run(curve(factor=1.0009)), again=baseline).passed is True
    got = trajectory(baseline, run(curve(factor=1.0011)), again=baseline)
    assert got.passed is False
    assert got.found == pytest.approx(0.0011)
    assert got.limit == 0.001


@pytest.mark.parametrize("which", ["again", "nudged", "reseeded"])
def test_the_scripts_own_difference_widens_the_limit(which: str) -> None:
    baseline, candidate, shaken = run(curve()), run(curve(factor=1.01)), run(curve(factor=1.004))
    yardsticks = {"again": baseline, which: (baseline, shaken) if which == "nudged" else shaken}
    got = trajectory(baseline, candidate, **yardsticks)
    assert got.passed is True
    assert got.limit == pytest.approx(0.012)
    assert trajectory(baseline, run(curve(factor=1.013)), **yardsticks).passed is False


def test_a_limit_too_wide_to_mean_anything_is_no_pass() -> None:
    baseline, shaken = run(curve()), run(curve(factor=1.1))
    assert trajectory(baseline, run(curve(factor=1.05)), again=baseline, reseeded=shaken).passed is None
    assert trajectory(baseline, run(curve(factor=1.5)), again=baseline, reseeded=shaken).passed is False


@pytest.mark.parametrize("which", ["nudged", "reseeded"])
def test_what_keeps_the_smallest_limit_passes_however_far_rounding_moves_the_losses(which: str) -> None:
    baseline, shaken = run(curve()), run(curve(factor=1.1))
    yardsticks = {"again": baseline, which: (shaken,) if which == "nudged" else shaken}
    for factor in (1.0, 1.0009):
        got = trajectory(baseline, run(curve(factor=factor)), **yardsticks)
        assert got.passed is True and got.limit == 0.001
    assert trajectory(baseline, run(curve(factor=1.0011)), **yardsticks).passed is None


def test_an_exact_lever_within_the_smallest_limit_passes_in_a_script_that_is_very_noisy() -> None:
    baseline, again = run(curve()), run(curve(factor=1.05))
    got = exact_trajectory(baseline, run(curve(factor=1.0009)), again=again, noisy=True)
    assert got.passed is True and got.limit == 0.001
    assert exact_trajectory(baseline, run(curve(factor=1.0011)), again=again, noisy=True).passed is None


def test_exact_means_to_the_last_bit() -> None:
    baseline = run(curve())
    last_bit = [math.nextafter(it, 9) if it is not None else None for it in curve()]
    assert exact_trajectory(baseline, run(curve()), again=baseline).passed is True
    assert exact_trajectory(baseline, run(last_bit), again=baseline).passed is False


def test_exact_allows_what_the_baseline_itself_does() -> None:
    baseline, again = run(curve()), run(curve(factor=1 + 1e-6))
    assert exact_trajectory(baseline, run(curve(factor=1 + 2e-6)), again=again).passed is True
    assert exact_trajectory(baseline, run(curve(factor=1 + 4e-6)), again=again).passed is False


def with_gap(row: int, value: float | None) -> list[float | None]:
    made = curve()
    made[row] = value
    return made


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
def test_an_unread_or_unfinite_loss_is_lost(gate: object) -> None:
    baseline = run(curve())
    for value in (None, math.nan, math.inf):
        got = gate(baseline, run(with_gap(77, value)), again=baseline)  # type: ignore[operator]
        assert got.passed is False
        assert "step 78" in got.text


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
def test_losses_read_now_and_then_are_enough_when_both_runs_have_them(gate: object) -> None:
    sparse = [loss if row % 10 == 0 else None for row, loss in enumerate(curve())]
    assert gate(run(sparse), run(sparse), again=run(sparse)).passed is True  # type: ignore[operator]
    sparser = [loss if row % 20 == 0 else None for row, loss in enumerate(curve())]
    assert gate(run(sparser), run(sparser), again=run(sparser)).passed is None  # type: ignore[operator]


@pytest.mark.parametrize("gate", [trajectory, exact_trajectory])
@pytest.mark.parametrize("values", [[], [None] * 300, curve(19)])
def test_too_little_to_compare_stays_open(gate: object, values: list[float | None]) -> None:
    for one, other in ((curve(), values), (values, curve()), (values, values)):
        assert gate(run(one), run(other), again=run(one)).passed is None  # type: ignore[operator]


def test_a_script_that_ends_elsewhere_is_lost() -> None:
    long, short = curve(300), curve(300)[:150]
    full, cut = run(long, ending=Completed()), run(short, ending=Completed())
    assert trajectory(full, cut, again=full).passed is False
    assert trajectory(cut, full, again=cut).passed is False
    assert trajectory(full, run(short), again=full).passed is True
    scaled = run(long[:298], ending=Completed(), scaler_skipped_steps=2)
    assert trajectory(full, scaled, again=full).passed is True


def test_a_candidate_that_crashes_is_lost() -> None:
    baseline = run(curve())
    crashed = run(curve()[:50], ending=Crashed(exit_code=1, error="AssertionError: loss is not finite"))
    got = trajectory(baseline, crashed, again=baseline)
    assert got.passed is False
    assert "AssertionError" in got.text


# -- G4 -------------------------------------------------------------------------------------------

SEEDS = [0.90, 0.92, 0.91, 0.93, 0.89]


def test_a_small_paired_change_is_equivalent() -> None:
    got = equivalence(SEEDS, [it + shift for it, shift in zip(SEEDS, (1e-3, -2e-3, 0, 2e-3, -1e-3), strict=True)])
    assert got.passed is True
    assert got.limit == pytest.approx(0.0158, abs=1e-4)


def test_a_large_change_is_not() -> None:
    assert equivalence(SEEDS, [it + 0.05 for it in SEEDS]).passed is False
    assert equivalence(SEEDS, [it - 0.05 for it in SEEDS]).passed is False


def test_a_change_that_might_be_either_stays_open() -> None:
    shifts = (0.03, -0.03, 0.04, -0.02, 0.05)
    assert equivalence(SEEDS, [it + shift for it, shift in zip(SEEDS, shifts, strict=True)]).passed is None


def test_two_seeds_are_too_few() -> None:
    assert equivalence(SEEDS[:2], SEEDS[:2]).passed is None


def test_unpaired_or_unfinite_metrics_are_refused() -> None:
    with pytest.raises(ValueError, match="paired"):
        equivalence(SEEDS, SEEDS[:3])
    with pytest.raises(ValueError, match="not finite"):
        equivalence(SEEDS, [*SEEDS[:4], math.nan])


def test_runs_of_several_seeds() -> None:
    def seeded(factor: float) -> list[tuple[Run, Run]]:
        return [
            (run(curve(seed=seed, factor=1 + seed / 50)), run(curve(seed=seed, factor=factor * (1 + seed / 50))))
            for seed in range(5)
        ]

    assert learning(seeded(1.0001)).passed is True
    assert learning(seeded(1.3)).passed is False
    assert learning([*seeded(1.0001), (run(curve()), run([*curve(299), math.nan]))]).passed is False
    assert learning([*seeded(1.0001), (run(curve()), run([None] * 300))]).passed is None
    assert learning([]).passed is None


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (3e-7, "3e-05 %"), (0.00031, "0.031 %"), (0.5, "50 %"), (2.6, "260 %"), (31.0, "3,100 %")],
)
def test_a_share_has_no_exponent_unless_it_is_tiny(share: float, text: str) -> None:
    assert percent(share) == text
