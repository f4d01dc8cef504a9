"""The times of a verification as a report draws them."""

from __future__ import annotations

import pytest

from hotlap.measure.timings import MOST_STEPS, timings
from hotlap.records import Block, Replicate, Run, Steps


def run(steps: int, blocks: tuple[tuple[int, int], ...] = (), *, samples: int = 32, warm_up_blocks: int = 0) -> Run:
    """Make a run whose steps take 1, 2, 3 ... seconds, with blocks from a row on."""
    return Run(
        steps=Steps(wall_seconds=tuple(float(it + 1) for it in range(steps)), samples=(samples,) * steps),
        blocks=tuple(Block(first_step=first, steps=count, samples=1, wall_seconds=1.0) for first, count in blocks),
        warm_up_blocks=warm_up_blocks,
    )


def replicate(*runs: Run, rounds: int = 2) -> Replicate:
    return Replicate(runs=runs, rounds=tuple(tuple(arm + it / 10 for it in range(rounds)) for arm in range(len(runs))))


def test_rounds_of_every_replicate_and_steps_of_the_last_one() -> None:
    blocks = ((0, 4), (5, 2), (8, 2))
    last = replicate(run(10, blocks, warm_up_blocks=1), run(10), run(10, blocks, samples=64, warm_up_blocks=1))
    found = timings([replicate(run(3), run(3), run(3)), last])
    assert found.baseline == ((0.0, 0.1),) * 2
    assert found.repeat == ((1.0, 1.1),) * 2
    assert found.plan == ((2.0, 2.1),) * 2
    assert found.baseline_steps == (6.0, 7.0, 9.0, 10.0), "two rounds, without the warm-up and what is between blocks"
    assert (found.baseline_samples, found.plan_samples) == (32, 64)


def test_blocks_that_were_taken_in_turns_are_drawn_whole() -> None:
    taken = run(12, ((0, 3), (4, 2), (7, 1), (9, 1), (11, 1)), warm_up_blocks=1)
    found = timings([replicate(taken, taken, taken)])
    assert found.plan_steps == (5.0, 6.0, 8.0, 10.0, 12.0), "two rounds of two turns each"


def test_the_last_of_very_many_steps_are_kept() -> None:
    many = run(3 * MOST_STEPS, ((0, 3 * MOST_STEPS),))
    found = timings([replicate(many, many, many, rounds=1)])
    assert len(found.plan_steps) == MOST_STEPS and found.plan_steps[-1] == 3 * MOST_STEPS


def test_without_blocks_the_warm_up_is_left_out() -> None:
    found = timings([replicate(run(30), run(30), run(30))])
    assert found.baseline_steps and found.baseline_steps[0] > 1 and found.baseline_steps[-1] == 30


def test_other_arms_can_be_named() -> None:
    found = timings([replicate(run(3), run(3), run(3), run(3))], arms=(0, 1, 3))
    assert found.plan == ((3.0, 3.1),)


def test_no_replicates_have_no_times() -> None:
    with pytest.raises(ValueError, match="no replicates"):
        timings([])
