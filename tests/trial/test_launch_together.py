"""Launches that are not timed start side by side and take their steps in turn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from hotlap.records import Assignment, Completed, Crashed, LaunchRequest, OutOfMemory, Run, Stopped
from hotlap.trial.local import LocalExecutor

Assign = Callable[..., Assignment]
Diary = Callable[[Run, str], list[dict[str, Any]]]


def together(executor: LocalExecutor, *assignments: Assignment, steps: int = 30) -> tuple[Run, ...]:
    return executor.launch_together([LaunchRequest(assignment=it, steps=steps) for it in assignments])


def at(run: Run, kind: str, diary: Diary) -> float:
    return float(diary(run, kind)[0]["at"])


def test_launches_start_together_and_take_steps_in_turn(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    beating = assign("--beat", "--step-seconds", 0.01)
    runs = together(executor, beating, beating, assign(seed=3))
    assert all(isinstance(it.ending, Stopped) for it in runs)
    assert [it.seed for it in runs] == [0, 0, 3]
    assert [it.blocks[0].steps for it in runs] == [29, 29, 29]
    first, second, _ = runs
    last_of_first = max(it["at"] for it in diary(first, "thread"))
    assert at(second, "first step", diary) < last_of_first, "their starts overlap"
    beats = [it["at"] for it in diary(second, "thread")]
    ready = max(at(it, "first step", diary) for it in runs)
    frozen = [later - earlier for earlier, later in pairwise(beats) if later > ready]
    assert max(frozen) >= 0.5 * 29 * 0.01, "it is frozen while another takes its steps"


def test_a_launch_that_fails_does_not_affect_the_others(executor: LocalExecutor, assign: Assign) -> None:
    early, late, ends = assign("--fail-at", 0), assign("--fail-at", 12), assign("--steps", 7)
    runs = together(executor, early, assign(), late, ends)
    assert [type(it.ending) for it in runs] == [Crashed, Stopped, Crashed, Completed]


def test_a_launch_without_enough_memory_is_repeated_alone(
    executor: LocalExecutor, assign: Assign, tmp_path: Path
) -> None:
    crowded = assign("--alone", tmp_path)
    runs = together(executor, crowded, crowded)
    assert all(isinstance(it.ending, Stopped) for it in runs)
    runs = together(executor, assign("--fail", "device-memory", "--fail-at", 3), assign())
    assert [type(it.ending) for it in runs] == [OutOfMemory, Stopped]


def test_first_steps_on_a_device_take_turns(executor: LocalExecutor, assign: Assign, diary: Diary) -> None:
    runs = together(executor, *[assign("--on-device", "--step-seconds", 0.05)] * 3, steps=2)
    assert all(isinstance(it.ending, Stopped) for it in runs)
    spans = sorted((at(it, "went on", diary), at(it, "first step", diary)) for it in runs)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
