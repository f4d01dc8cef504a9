"""The number of steps is known however the process ended, and a hang among many steps is detected soon."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.records import Assignment, Crashed, LaunchRequest, Stopped, TimedOut
from hotlap.runtime.step_counter import open_counter
from hotlap.trial.local import LocalExecutor
from hotlap.trial.progress import Stall, StepCounters

Assign = Callable[..., Assignment]


@pytest.mark.parametrize("ranks", [0, 2])
def test_a_hang_in_a_long_block_is_detected_within_a_step_limit(
    executor: LocalExecutor, assign: Assign, ranks: int
) -> None:
    """Hang in one long block or, with several ranks, in growing blocks."""
    assignment = assign("--ranks", ranks, "--fail", "hang", "--fail-at", 5, step_limit_seconds=1.0)
    began = time.monotonic()
    run = executor.launch(LaunchRequest(assignment=assignment, steps=10**9, seconds=600, minimum_steps=100))
    assert isinstance(run.ending, TimedOut)
    assert (run.ending.during, run.ending.limit_seconds) == ("block", 1.0)
    # The other fake rank goes on to the end of its block, as far as it comes on a busy machine.
    assert 5 <= run.ending.steps_done <= (100 if ranks else 5)
    assert time.monotonic() - began < 200


def test_a_slow_script_that_progresses_is_not_ended(executor: LocalExecutor, assign: Assign) -> None:
    assignment = assign("--step-seconds", 0.1, step_limit_seconds=1.5)
    run = executor.launch(LaunchRequest(assignment=assignment, steps=20))
    assert isinstance(run.ending, Stopped)


@pytest.mark.parametrize("how", ["os-exit", "kill", "segmentation-fault"])
def test_steps_of_a_process_that_ended_without_a_report(executor: LocalExecutor, assign: Assign, how: str) -> None:
    assignment = assign("--fail", how, "--fail-at", 7)
    run = executor.launch(LaunchRequest(assignment=assignment, steps=1000))
    assert isinstance(run.ending, Crashed)
    assert run.ending.steps_done == 7


def test_a_counter_is_read_while_and_after_it_is_written(tmp_path: Path) -> None:
    counters = StepCounters(tmp_path)
    assert counters.read() == []
    counter = open_counter(tmp_path)
    assert counters.read() == [0]
    counter[0] = 70_000
    assert counters.most() == 70_000
    del counter
    assert counters.most() == 70_000


def test_a_counter_that_cannot_be_stored_still_counts(tmp_path: Path) -> None:
    counter = open_counter(tmp_path / "no such folder")
    counter[0] = 3
    assert StepCounters(tmp_path / "no such folder").read() == []


def test_stalls_are_distinguished_from_progress(tmp_path: Path) -> None:
    now = [0.0]

    def after(seconds: float) -> bool:
        now[0] += seconds
        return stall.noticed()

    stall = Stall(StepCounters(tmp_path), 10.0, clock=lambda: now[0])
    assert not after(100)  # no step has been reported
    (tmp_path / "steps-done-1").write_bytes((5).to_bytes(8, sys.byteorder))
    assert not after(9)
    assert not after(9)
    (tmp_path / "steps-done-1").write_bytes((6).to_bytes(8, sys.byteorder))
    assert not after(9)
    assert not after(9)
    assert after(9)
    unlimited = Stall(StepCounters(tmp_path), None, clock=lambda: now[0])
    now[0] += 10**6
    assert not unlimited.noticed()
