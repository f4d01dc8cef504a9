"""A real child that another process ends with SIGKILL."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.trials import Trials
from hotlap.records import Assignment, Crashed, LaunchRequest, Stopped
from hotlap.trial.local import LocalExecutor

Assign = Callable[..., Assignment]
LivingBelow = Callable[[Path], list[psutil.Process]]
WaitUntil = Callable[[Callable[[], bool]], bool]


def kill_one(tmp_path: Path, living_below: LivingBelow, wait_until: WaitUntil) -> threading.Thread:
    """Kill the first child that has done some steps."""

    def has_stepped() -> bool:
        counters = list(tmp_path.glob("runs/*/steps-done-*"))
        return any(int.from_bytes(it.read_bytes(), "little") > 3 for it in counters)

    def kill() -> None:
        wait_until(has_stepped)
        for process in living_below(tmp_path):
            with suppress(psutil.NoSuchProcess):  # ending the first may end the others
                process.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    return thread


def test_a_kill_from_outside_is_distinguished_from_a_crash(
    executor: LocalExecutor, assign: Assign, tmp_path: Path, living_below: LivingBelow, wait_until: WaitUntil
) -> None:
    thread = kill_one(tmp_path, living_below, wait_until)
    run = executor.launch(LaunchRequest(assignment=assign("--step-seconds", 0.05), steps=10_000))
    thread.join()
    assert isinstance(run.ending, Crashed)
    assert run.ending.killed_from_outside
    assert run.ending.exit_code == -9
    assert run.ending.steps_done > 3
    assert "killed from outside (SIGKILL)" in run.ending.error


def test_a_trial_killed_from_outside_is_repeated(
    executor: LocalExecutor, assign: Assign, tmp_path: Path, living_below: LivingBelow, wait_until: WaitUntil
) -> None:
    assignment = assign("--step-seconds", 0.05)
    trials = Trials(assignment.workload, Options(), JournaledExecutor(executor))
    counts: list[int] = []
    trials.on_repetition = counts.append
    thread = kill_one(tmp_path, living_below, wait_until)
    run = trials.launch(assignment, steps=40)
    thread.join()
    assert isinstance(run.ending, Stopped)
    assert counts == [1]
    assert len(list(tmp_path.glob("runs/0*"))) == 2


def test_what_hotlap_ends_was_not_killed_from_outside(executor: LocalExecutor, assign: Assign) -> None:
    """Close one rank's channel: hotlap then ends the other ranks."""
    run = executor.launch(LaunchRequest(assignment=assign("--fail", "nonsense", "--fail-at", 3), steps=100))
    assert isinstance(run.ending, Crashed)
    assert not run.ending.killed_from_outside
