"""Replicates whose arms start together are measured one after the other, like those that start by themselves."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from hotlap.records import Assignment, Crashed, OutOfMemory, Replicate, Run, Stopped, TurnRequest
from hotlap.trial.local import LocalExecutor

Assign = Callable[..., Assignment]
Diary = Callable[[Run, str], list[dict[str, Any]]]


def request(*arms: Assignment, **fields: Any) -> TurnRequest:
    return TurnRequest(arms=arms, rounds=3, block_seconds=0.02, block_steps=2, **fields)


def at(run: Run, kind: str, diary: Diary) -> float:
    return float(diary(run, kind)[0]["at"])


def endings(taken: tuple[Replicate, ...]) -> list[list[type]]:
    return [[type(run.ending) for run in it.runs] for it in taken]


def test_replicates_start_together_and_are_measured_in_turn(
    executor: LocalExecutor, assign: Assign, diary: Diary
) -> None:
    arm = assign("--beat", "--step-seconds", 0.005)
    first, second = executor.take_replicates([request(arm, arm), request(arm, arm, order_seed=1)])
    assert endings((first, second)) == [[Stopped, Stopped]] * 2
    assert [len(row) for it in (first, second) for row in it.rounds] == [3] * 4
    last_of_first = max(it["at"] for run in first.runs for it in diary(run, "thread"))
    for run in second.runs:
        assert at(run, "first step", diary) < last_of_first, "it started while the first replicate was not over"
        beats = [it["at"] for it in diary(run, "thread")]
        ready = max(at(it, "first step", diary) for it in (*first.runs, *second.runs))
        frozen = [later - earlier for earlier, later in pairwise(beats) if later > ready]
        assert max(frozen) >= 0.5 * (last_of_first - ready), "it was frozen while the first replicate was measured"
    assert second.wall_seconds >= max(it.startup_seconds for it in second.runs), "each has the common start"


def test_a_replicate_that_fails_does_not_affect_the_next(executor: LocalExecutor, assign: Assign) -> None:
    fails = request(assign(), assign("--fail-at", 4))
    starts_not = request(assign("--fail-at", 0), assign())
    taken = executor.take_replicates([fails, starts_not, request(assign(), assign())])
    assert endings(taken)[2] == [Stopped, Stopped] and all(taken[2].rounds)
    assert [type(it.runs[arm].ending) for it, arm in zip(taken, (1, 0), strict=False)] == [Crashed, Crashed]
    assert not any(row for it in taken[:2] for row in it.rounds)


def test_replicates_without_enough_memory_for_all_are_taken_one_by_one(
    executor: LocalExecutor, assign: Assign, tmp_path: Path
) -> None:
    crowded = assign("--alone", tmp_path)
    taken = executor.take_replicates([request(crowded), request(crowded)])
    assert endings(taken) == [[Stopped], [Stopped]] and all(row for it in taken for row in it.rounds)
    full = request(assign("--fail", "device-memory", "--fail-at", 3), assign())
    taken = executor.take_replicates([full, request(assign(), assign())])
    assert endings(taken)[0][0] is OutOfMemory and endings(taken)[1] == [Stopped, Stopped]


def test_their_time_is_over_for_all_at_once(executor: LocalExecutor, assign: Assign) -> None:
    slow = request(*[assign("--step-seconds", 0.2)] * 2, most_seconds=4.0)
    many = [msgspec.structs.replace(slow, order_seed=it, rounds=1000) for it in range(3)]
    taken = executor.take_replicates(many)
    assert len(taken[0].rounds[0]) < 1000 and taken[2].rounds == ((), ())
    assert all(isinstance(run.ending, Stopped) for it in taken for run in it.runs)
