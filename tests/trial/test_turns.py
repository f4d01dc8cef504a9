"""Arms that take turns: which arm ran when, and what becomes of a replicate in which an arm fails."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from hotlap.records import (
    Assignment,
    Block,
    Completed,
    Crashed,
    OutOfMemory,
    Replicate,
    Run,
    Stopped,
    TimedOut,
    TurnRequest,
)
from hotlap.trial.local import LocalExecutor
from hotlap.trial.turns import RoundsInTurns

Assign = Callable[..., Assignment]
Diary = Callable[[Run, str], list[dict[str, Any]]]
LEAST_STEPS = 3
"""Of a block, however slow the machine is."""


def take_turns(executor: LocalExecutor, *arms: Assignment, **fields: Any) -> Replicate:
    fields = {"rounds": 4, "block_seconds": 0.03, "block_steps": LEAST_STEPS, **fields}
    return executor.take_turns(TurnRequest(arms=arms, **fields))


def timed(run: Run, diary: Diary) -> list[dict[str, Any]]:
    """Read the diary entries of the blocks after warm-up."""
    return diary(run, "block")[run.warm_up_blocks :]


def test_every_round_has_a_block_of_every_arm(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    turns = take_turns(executor, assign("--step-seconds", 0.002), assign("--step-seconds", 0.01), assign())
    assert turns.interleaved
    assert [len(row) for row in turns.rounds] == [4, 4, 4]
    assert all(isinstance(run.ending, Stopped) for run in turns.runs)
    assert 1.3 < min(turns.rounds[1]) / min(turns.rounds[0]) < 15.0
    for run, row in zip(turns.runs, turns.rounds, strict=True):
        assert len(run.blocks) == run.warm_up_blocks + 4
        assert run.warm_up_blocks >= 4
        assert row == tuple(block.wall_seconds / block.samples for block in run.blocks[-4:])
        assert all(block.steps >= 3 for block in run.blocks[-4:])
        assert max(block.wall_seconds for block in run.blocks[-4:]) >= 0.03
        assert all(block.other_load >= 0 for block in run.blocks)
        assert 0 < run.wall_seconds < turns.wall_seconds
    began = [[entry["began"] for entry in timed(run, diary)] for run in turns.runs]
    for earlier, later in pairwise(zip(*began, strict=True)):
        assert max(earlier) < min(later)


def test_a_block_may_be_taken_in_several_turns(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    turns = take_turns(executor, assign(), assign("--step-seconds", 0.01), block_steps=8, block_turns=4)
    assert [len(row) for row in turns.rounds] == [4, 4]
    for run, row in zip(turns.runs, turns.rounds, strict=True):
        parts = run.blocks[run.warm_up_blocks :]
        assert len(parts) == 4 * 4
        assert all(it.steps >= 2 for it in parts)
        blocks = [parts[first : first + 4] for first in range(0, len(parts), 4)]
        assert all(sum(it.steps for it in block) >= 8 for block in blocks)
        found = [sum(it.wall_seconds for it in block) / sum(it.samples for it in block) for block in blocks]
        assert row == pytest.approx(found)
    began = [[entry["began"] for entry in timed(run, diary)] for run in turns.runs]
    for earlier, later in pairwise(zip(*began, strict=True)):
        assert max(earlier) < min(later), "every turn is one of all arms"


@pytest.mark.parametrize("turns", [1, 2, 4])
@pytest.mark.parametrize("period", [2, 3, 4, 5, 7, 9])
def test_steps_that_wait_at_a_regular_interval_do_not_favour_an_arm(period: int, turns: int) -> None:
    """As with a loader of so many workers: the arms are the same, but wait at different steps."""
    done = [0, period // 2]

    def turn(arm: int, steps: int) -> Block:
        first = done[arm] + 1  # one step leads in
        done[arm] = first + steps
        seconds = sum(5.0 if step % period == 0 else 1.0 for step in range(first, done[arm]))
        return Block(steps=steps, samples=steps, wall_seconds=seconds)

    request = TurnRequest(arms=(), block_turns=turns, block_seconds=0.0, order_seed=period)
    rounds = RoundsInTurns(request, [8, 8], turn)
    rows = [rounds.take() for _ in range(200)]
    first, second = zip(*[[it.wall_seconds / it.steps for it in row] for row in rows if row], strict=True)
    assert fmean(first) == pytest.approx(fmean(second), rel=0.06)


def test_an_arm_that_ends_within_a_round_leaves_no_round() -> None:
    blocks = [Block(steps=2, samples=2, wall_seconds=0.1)] * 5
    rounds = RoundsInTurns(TurnRequest(arms=(), block_turns=4), [8, 8], lambda *_: blocks.pop() if blocks else None)
    assert rounds.take() is None
    assert not blocks


def test_the_samples_of_a_block_are_unknown_where_those_of_a_turn_are() -> None:
    samples = [4, 0, 4, 4]
    request = TurnRequest(arms=(), block_turns=4, block_seconds=0.0)
    rounds = RoundsInTurns(request, [8], lambda _, it: Block(steps=it, samples=samples.pop(), wall_seconds=0.1))
    taken = rounds.take()
    assert taken is not None
    (block,) = taken
    assert block.samples == 0 and block.steps >= 8
    assert block.wall_seconds == pytest.approx(0.4)


def test_warm_up_has_fewer_steps_where_these_are_slow(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--step-seconds", 0.05), block_steps=8, rounds=1)
    (run,) = turns.runs
    first, *others = [it.steps for it in run.blocks]
    assert first == 2 and max(others[:-1]) < 8 <= others[-1]


def test_the_order_is_random_and_repeatable(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    def order(seed: int) -> list[list[int]]:
        turns = take_turns(executor, assign(), assign(), assign(), order_seed=seed, rounds=6)
        began = zip(*[[entry["began"] for entry in timed(run, diary)] for run in turns.runs], strict=True)
        return [sorted(range(3), key=lambda arm: row[arm]) for row in began]

    first = order(1)
    assert len({tuple(row) for row in first}) > 1
    assert order(1) == first


def test_only_one_arm_runs_at_a_time(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    """Check that no thread or worker process ran during another arm's block."""
    turns = take_turns(executor, assign("--beat"), assign("--beat"), block_seconds=0.1)
    blocks = [timed(run, diary) for run in turns.runs]
    beats = [[it["at"] for kind in ("thread", "worker") for it in diary(run, kind)] for run in turns.runs]
    for own in (0, 1):
        for block in blocks[own]:
            during = [[at for at in times if block["began"] < at < block["ended"]] for times in beats]
            assert len(during[own]) > 3
            assert not during[1 - own]
    assert all(diary(run, "worker") for run in turns.runs)


@pytest.mark.parametrize("ranks", [0, 2])
def test_first_steps_on_a_device_are_taken_one_at_a_time(
    executor: LocalExecutor, assign: Assign, diary: Diary, ranks: int
) -> None:
    arm = assign("--on-device", "--step-seconds", 0.1, *(("--ranks", ranks) if ranks else ()))
    turns = take_turns(executor, arm, arm, arm, rounds=1, block_steps=1)
    assert all(isinstance(run.ending, Stopped) for run in turns.runs)
    first_steps = sorted(
        (min(it["at"] for it in diary(run, "went on")), max(it["at"] for it in diary(run, "first step")))
        for run in turns.runs
    )
    for earlier, later in pairwise(first_steps):
        assert earlier[1] <= later[0]


def test_a_single_arm_does_not_wait(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    turns = take_turns(executor, assign("--on-device"), rounds=1)
    assert [it["waits"] for it in diary(turns.runs[0], "arrived")] == [False]


def test_an_arm_that_fails_while_waiting_ends_the_replicate(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--on-device", "--fail-at", 0), assign("--on-device"))
    assert [type(run.ending) for run in turns.runs] == [Crashed, Stopped]


def test_a_short_script_keeps_its_complete_rounds(executor: LocalExecutor, assign: Assign) -> None:
    short = assign("--steps", 800, "--step-seconds", 0.002)
    turns = take_turns(executor, assign(), short, rounds=1000, warm_up_limit_seconds=0.2)
    assert isinstance(turns.runs[0].ending, Stopped)
    assert turns.runs[1].ending == Completed()
    assert 0 < len(turns.rounds[0]) == len(turns.rounds[1]) <= 800 // LEAST_STEPS


def test_a_script_that_ends_before_the_warm_up_leaves_no_rounds(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign(), assign("--steps", 4))
    assert turns.runs[1].ending == Completed()
    assert turns.rounds == ((), ())


@pytest.mark.parametrize("step", [0, 5, 300])
def test_an_arm_that_crashes_ends_the_replicate(executor: LocalExecutor, assign: Assign, step: int) -> None:
    """Crash at the start, during warm-up, and during the rounds."""
    turns = take_turns(executor, assign(), assign("--fail-at", step), assign(), rounds=1000)
    assert [type(run.ending) for run in turns.runs] == [Stopped, Crashed, Stopped]
    assert turns.rounds == ((), (), ())
    assert turns.interleaved


def test_an_arm_that_hangs_ends_the_replicate(executor: LocalExecutor, assign: Assign) -> None:
    hanging = assign("--fail", "hang", "--fail-at", 5, block_limit_seconds=0.5)
    turns = take_turns(executor, assign(), hanging)
    assert [type(run.ending) for run in turns.runs] == [Stopped, TimedOut]
    assert turns.rounds == ((), ())


def test_arms_of_several_processes(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--ranks", 2), assign("--ranks", 2), rounds=2)
    assert all(isinstance(run.ending, Stopped) for run in turns.runs)
    assert [len(row) for row in turns.rounds] == [2, 2]
    assert all(block.samples == 2 * 4 * block.steps for run in turns.runs for block in run.blocks)


def test_steps_are_counted_if_samples_are_unknown(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--samples", 0), rounds=2)
    assert turns.rounds == (tuple(block.wall_seconds / block.steps for block in turns.runs[0].blocks[-2:]),)


def test_the_deadline_of_a_replicate_ends_it(executor: LocalExecutor, assign: Assign) -> None:
    arms = assign("--step-seconds", 0.01), assign("--step-seconds", 0.01)
    whole = take_turns(executor, *arms, rounds=200, most_seconds=6.0)
    assert all(isinstance(run.ending, Stopped) for run in whole.runs)
    assert len({len(row) for row in whole.rounds}) == 1 and len(whole.rounds[0]) < 200
    none = take_turns(executor, *arms, most_seconds=0.0)
    assert none.rounds == ((), ()) and all(isinstance(run.ending, Stopped) for run in none.runs)
    alternated = take_turns(executor, *arms, most_seconds=0.0, interleaved=False)
    assert alternated.rounds == ((), ())


def test_warm_up_has_a_limit(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign(), rounds=1, warm_up_limit_seconds=0.0)
    assert turns.runs[0].warm_up_blocks == 1
    assert any("had not settled" in note for note in turns.runs[0].notes)


def test_warm_up_has_as_many_steps_as_requested(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--step-seconds", 0.001), rounds=1, warm_up_steps=300)
    (run,) = turns.runs
    assert 1 + sum(it.steps + 1 for it in run.blocks[: run.warm_up_blocks]) >= 300
    assert len(run.blocks) == run.warm_up_blocks + 1


# -- one arm at a time ----------------------------------------------------------------------------


def launches(turns: Replicate, directory: Path) -> list[str]:
    """Return the arms of the launches, identified by their step seconds, in order."""
    found = []
    for assignment in sorted(directory.glob("*/assignment.json")):
        text = assignment.read_text()
        found.append("A" if '"0.002"' in text else "B")
    return found


def test_whole_launches_alternate_in_mirrored_order(
    executor: LocalExecutor, assign: Assign, tmp_path: Path, diary: Diary
) -> None:
    arms = assign("--step-seconds", 0.002), assign("--step-seconds", 0.01)
    turns = take_turns(executor, *arms, interleaved=False, rounds=5)
    assert not turns.interleaved
    assert launches(turns, tmp_path / "runs") in (list("ABBA"), list("BAAB"))
    assert [len(row) for row in turns.rounds] == [5, 5]
    assert all(isinstance(run.ending, Stopped) for run in turns.runs)
    assert 1.3 < min(turns.rounds[1]) / min(turns.rounds[0]) < 15.0


def test_arms_that_do_not_fit_together_are_alternated(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    turns = take_turns(executor, assign("--alone", tmp_path), assign("--alone", tmp_path))
    assert not turns.interleaved
    assert [type(run.ending) for run in turns.runs] == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [4, 4]


def test_a_library_without_memory_next_to_another_arm(executor: LocalExecutor, assign: Assign, tmp_path: Path) -> None:
    arm = assign("--alone", tmp_path, "--refused", "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED")
    turns = take_turns(executor, arm, arm)
    assert not turns.interleaved
    assert [type(run.ending) for run in turns.runs] == [Stopped, Stopped]


def test_a_round_with_allocator_retries_is_repeated(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign(), assign("--retry-every", 4), rounds=6)
    assert turns.interleaved
    assert [len(row) for row in turns.rounds] == [6, 6]
    run = turns.runs[1]
    void = sum(it.allocator_retries for it in run.blocks[run.warm_up_blocks :])
    assert 1 <= void <= 3
    assert len(run.blocks) == run.warm_up_blocks + 6 + void


def test_arms_whose_allocators_always_retry_are_alternated(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign(), assign("--retry-every", 1))
    assert not turns.interleaved
    assert [len(row) for row in turns.rounds] == [4, 4]


def test_an_arm_too_large_by_itself_is_out_of_memory(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign(), assign("--fail", "device-memory", "--fail-at", 0))
    assert not turns.interleaved
    assert [type(run.ending) for run in turns.runs] == [Stopped, OutOfMemory]
    assert turns.rounds == ((), ())


@pytest.mark.slow
def test_alternated_arms_that_end_early(executor: LocalExecutor, assign: Assign) -> None:
    short = assign("--steps", 800, "--step-seconds", 0.002)
    longer = assign("--steps", 1200)
    turns = take_turns(executor, longer, short, rounds=1000, interleaved=False, warm_up_limit_seconds=0.2)
    assert turns.runs[1].ending == Completed()
    assert 0 < len(turns.rounds[0]) == len(turns.rounds[1]) <= 800 // LEAST_STEPS
