"""Which phase changed: noise changes none, and a change is found despite noise."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from hotlap.procedures.check.phases import phase_shifts
from hotlap.procedures.check.wording import phases_text
from hotlap.records import STEP_PHASES, Block, Estimate, PhaseShift, Replicate, Run, StepPhase, Steps

STEP: dict[StepPhase, float] = {
    "data_wait": 4.0,
    "host_to_device": 0.0,
    "forward": 7.0,
    "backward": 7.0,
    "optimizer": 2.0,
    "other": 0.5,
}


def run(noise: random.Random, *, samples: int = 4, rows: int = 60, **factors: Any) -> Run:
    """Steps of some milliseconds whose first ten are warm-up and much longer; a launch has a level of its own."""
    level = noise.gauss(1.0, 0.02)
    columns = {
        name: tuple(
            1e-3 * level * seconds * factors.get(name, 1.0) * noise.gauss(1.0, 0.1) * (5.0 if row < 10 else 1.0)
            for row in range(rows)
        )
        for name, seconds in STEP.items()
    }
    wall = tuple(map(sum, zip(*columns.values(), strict=True)))
    blocks = (Block(steps=9, samples=36, wall_seconds=1.0),) * 6
    return Run(
        steps=Steps(wall_seconds=wall, phases=tuple(columns.items()), samples=(samples,) * rows),
        blocks=blocks,
        warm_up_blocks=1,
    )  # six blocks and the steps before them


def replicates_of(seed: int, count: int, **factors: Any) -> list[Replicate]:
    noise = random.Random(seed)
    return [Replicate(runs=(run(noise), run(noise), run(noise, **factors)), rounds=()) for _ in range(count)]


def moved(replicates: list[Replicate]) -> set[str]:
    return {it.phase for it in phase_shifts(replicates) if it.moved}


def test_noise_moves_no_phase() -> None:
    named = sum(bool(moved(replicates_of(seed, 3 + seed % 6))) for seed in range(60))
    assert named <= 6, "at most 5 % of checks of a script that did not change"


def test_what_moved_is_found() -> None:
    for phase in ("forward", "backward", "data_wait"):
        assert moved(replicates_of(7, 5, **{phase: 1.6})) == {phase}
    shift = next(it for it in phase_shifts(replicates_of(7, 8, backward=1.5)) if it.phase == "backward")
    assert shift.change.low < 3.5 / 20.5 < shift.change.high
    assert shift.before_share == pytest.approx(7 / 20.5, rel=0.05)


def test_a_larger_batch_is_no_longer_step() -> None:
    noise = random.Random(1)
    grown: dict[str, Any] = dict.fromkeys(STEP, 2.0)
    replicates = [Replicate(runs=(run(noise), run(noise), run(noise, samples=8, **grown)), rounds=()) for _ in range(5)]
    assert not moved(replicates)


def test_too_little_is_nothing() -> None:
    assert phase_shifts(replicates_of(1, 2)) == ()
    blank = [msgspec.structs.replace(it, runs=(Run(), Run(), Run())) for it in replicates_of(1, 3)]
    assert phase_shifts(blank) == ()


def test_the_largest_change_comes_first() -> None:
    def shift(phase: str, value: float) -> PhaseShift:
        change = Estimate(value=value, low=value - 0.01, high=value + 0.01)
        return PhaseShift(phase=phase, before_share=0.2, change=change, confidence=0.99)  # type: ignore[arg-type]

    text = phases_text([shift("optimizer", 0.03), shift("forward", -0.1), shift("other", 0.001)], failed=True)
    assert text == (
        "As a share of the step before, forward takes 10.0 % less (99 % interval 9.0 to 11.0 %; 20 % before); "
        "optimizer takes 3.0 % more (99 % interval 2.0 to 4.0 %; 20 % before)."
    )
    assert phases_text([shift("other", 0.001)], failed=True) == ("No single phase of the step changed measurably.")
    assert phases_text([shift("other", 0.001)], failed=False) == ""
    assert {it.phase for it in phase_shifts(replicates_of(1, 3))} == set(STEP_PHASES)
