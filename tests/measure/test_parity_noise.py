"""Exact levers in scripts whose own runs sometimes differ: neither rejected for it, nor excused by it."""

from __future__ import annotations

import random

import pytest
from parity_runs import curve, run

from hotlap.measure.parity.noise import furthest, noise_explains
from hotlap.measure.parity.verdict import judge_exact
from hotlap.records import Invariants, Run

STEPS = 60
SEEN = Invariants(learning_rates=((0.1,),) * STEPS, samples=(32,) * STEPS, training=(True,) * STEPS)


def shaken(by: float) -> Run:
    return run(curve(STEPS, factor=1 + by), invariants=SEEN)


PLAIN = shaken(0.0)


def test_the_baselines_own_difference_explains_the_candidates() -> None:
    assert noise_explains([PLAIN, PLAIN, PLAIN, shaken(1e-7)], [shaken(2e-7), shaken(3e-7)])


@pytest.mark.parametrize(
    ("replicates", "differing", "explained"),
    [(1, 1, False), (2, 2, False), (3, 3, False), (3, 1, True), (3, 2, True), (5, 2, True), (5, 3, False)],
)
def test_few_of_many_runs_may_differ_by_chance(replicates: int, differing: int, explained: bool) -> None:
    """With three replicates, two of nine runs are both candidates with a probability of 3 in 36; with five, three of
    fifteen are with 10 in 455."""
    candidates = [shaken(1e-7 * (number + 1)) for number in range(differing)] + [PLAIN] * (replicates - differing)
    assert noise_explains([PLAIN] * (2 * replicates), candidates) is explained


def test_a_difference_that_no_run_is_without_is_the_levers() -> None:
    assert not noise_explains([PLAIN] * 6, [shaken(1e-7)] * 3)


def test_runs_that_agree_need_no_explanation() -> None:
    assert noise_explains([PLAIN] * 6, [PLAIN] * 3), "that none of nine runs differs is no surprise"


def test_the_furthest_run_is_found() -> None:
    others = [shaken(1e-6), shaken(-4e-6), PLAIN, shaken(2e-6)]
    assert furthest(PLAIN, others) is others[1]


def noisy_runs(source: random.Random, count: int, rate: float) -> list[Run]:
    """Each run differs, at that rate, by one part in a million."""
    return [shaken(source.gauss(0, 1e-6)) if source.random() < rate else PLAIN for _ in range(count)]


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.35, 0.6, 1.0])
@pytest.mark.parametrize("replicates", [3, 5])
def test_a_lever_that_does_nothing_is_seldom_blamed(rate: float, replicates: int) -> None:
    """Judged replicate by replicate, as each of these trials would be alone, up to two thirds would be."""
    source = random.Random(replicates)
    verdicts = [judge_exact(trial(noisy_runs(source, 3 * replicates, rate))).verdict for _ in range(100)]
    assert verdicts.count("lost") <= 2
    assert "not-verified" not in verdicts


def trial(runs: list[Run]) -> list[list[Run]]:
    """Replicates of three runs."""
    return [runs[start : start + 3] for start in range(0, len(runs), 3)]


def test_a_lever_that_breaks_training_is_lost_however_noisy_the_script() -> None:
    source = random.Random(0)
    for rate in (0.0, 0.3, 1.0):
        replicates = trial(noisy_runs(source, 9, rate))
        broken = [[*it[:2], shaken(0.004)] for it in replicates]
        assert judge_exact(broken).verdict == "lost"


def test_a_change_of_rounding_by_the_lever_is_lost_where_the_script_repeats_itself() -> None:
    assert judge_exact([[PLAIN, PLAIN, shaken(1e-7)]] * 3).verdict == "lost"


def test_noise_is_said_to_be_no_difference_found_and_never_identical() -> None:
    replicates = [[PLAIN, PLAIN, PLAIN], [PLAIN, PLAIN, shaken(1e-6)], [PLAIN, PLAIN, PLAIN]]
    got = judge_exact(replicates)
    assert got.verdict == "within"
    assert "No difference found within 0.1 %" in got.text


def test_a_script_that_differs_widely_from_itself_shows_nothing() -> None:
    wild = [[PLAIN, shaken(0.03), shaken(0.01)]] * 3
    assert judge_exact(wild).verdict == "not-verified"
