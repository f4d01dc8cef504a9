"""Arms too large to be on a device together: their device memory moves to the host while they wait."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hotlap.records import Accelerator, Assignment, Crashed, Replicate, Run, Stopped, TurnRequest
from hotlap.trial import suspension
from hotlap.trial.local import LocalExecutor
from hotlap.trial.suspension import Suspender, SuspensionFailedError, can_suspend

Assign = Callable[..., Assignment]
Diary = Callable[[Run, str], list[dict[str, Any]]]
STAND_IN = Path(__file__).with_name("cuda_checkpoint.py")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the replacement on the search path; it writes its diary to this folder."""
    program = tmp_path / "bin" / "cuda-checkpoint"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S {shlex.quote(str(STAND_IN))} "$@"\n')
    program.chmod(0o755)
    kept = tmp_path / "states"
    kept.mkdir()
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("CUDA_CHECKPOINT_FOLDER", str(kept))
    return kept


def take_turns(executor: LocalExecutor, *arms: Assignment, **fields: Any) -> Replicate:
    request = TurnRequest(
        arms=arms, **{"rounds": 3, "block_seconds": 0.03, "block_steps": 3, "suspended": True, **fields}
    )
    return executor.take_turns(request)


def asked(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(it) for it in (folder / "diary").read_text().splitlines()]


def test_only_the_arm_whose_turn_it_is_holds_the_device(
    executor: LocalExecutor, assign: Assign, diary: Diary, folder: Path
) -> None:
    turns = take_turns(executor, assign("--on-device"), assign("--on-device"), assign("--on-device"))
    assert turns.interleaved and [run.ending for run in turns.runs] == [Stopped()] * 3
    assert [len(row) for row in turns.rounds] == [3, 3, 3]
    moves = [it["action"] for it in asked(folder)]
    assert moves.count("checkpoint") == moves.count("restore") == 3 * (1 + 3 + 1), (
        "warm-up, rounds and the end; the stand-in has room for one"
    )
    starts = sorted(diary(run, "environment")[0]["at"] for run in turns.runs)
    first_left: dict[int, float] = {}
    for it in asked(folder):
        if it["action"] == "checkpoint":
            first_left.setdefault(it["pid"], it["at"])
    assert len(first_left) == 3
    for left, next_start in zip(sorted(first_left.values()), starts[1:], strict=False):
        assert left < next_start, "each starts when the previous one has left the device"
    blocks = sorted((it["began"], it["ended"]) for run in turns.runs for it in diary(run, "block"))
    for earlier, later in pairwise(blocks):
        assert earlier[1] <= later[0]
    assert all(run.longest_pause_seconds > 0 for run in turns.runs)


def test_a_resumed_device_gets_warm_up_steps(
    executor: LocalExecutor, assign: Assign, diary: Diary, folder: Path
) -> None:
    turns = take_turns(executor, assign("--on-device"), assign("--on-device"))
    orders = [it["order"] for it in diary(turns.runs[0], "order") if it["order"]["type"] == "proceed"]
    assert {it["lead_in"] for it in orders} == {3}


@pytest.mark.parametrize(
    "fails", ["lock", "restore", *(pytest.param(it, marks=pytest.mark.slow) for it in ("checkpoint", "unlock"))]
)
def test_whole_launches_alternate_if_suspension_fails(
    executor: LocalExecutor, assign: Assign, folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    monkeypatch.setenv("CUDA_CHECKPOINT_FAILS", fails)
    turns = take_turns(executor, assign("--on-device"), assign("--on-device"))
    assert not turns.interleaved
    assert [type(run.ending) for run in turns.runs] == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [3, 3]


def test_without_the_program_whole_launches_alternate(executor: LocalExecutor, assign: Assign) -> None:
    turns = take_turns(executor, assign("--on-device"), assign("--on-device"))
    assert not turns.interleaved and [len(row) for row in turns.rounds] == [3, 3]


def test_processes_without_a_device_are_only_frozen(executor: LocalExecutor, assign: Assign, folder: Path) -> None:
    turns = take_turns(executor, assign(), assign())
    assert turns.interleaved and [len(row) for row in turns.rounds] == [3, 3]
    assert not (folder / "diary").exists()


def test_an_arm_that_crashes_is_not_blamed_on_the_device(executor: LocalExecutor, assign: Assign, folder: Path) -> None:
    turns = take_turns(executor, assign("--on-device"), assign("--on-device", "--fail-at", 5))
    assert turns.interleaved and turns.rounds == ((), ())
    assert [type(run.ending) for run in turns.runs] == [Stopped, Crashed]


def test_the_reason_for_a_failure_is_reported(folder: Path) -> None:
    suspender = Suspender.found()
    assert suspender is not None
    assert suspender.suspend([1]) == (), "a process without a device is not suspended"
    with pytest.raises(SuspensionFailedError, match="could not restore it: Could not get the state"):
        suspender.restore([1])
    with pytest.raises(SuspensionFailedError, match="cannot be started: No such file"):
        Suspender("/nowhere/cuda-checkpoint").restore([1])
    assert Suspender("/nowhere/cuda-checkpoint").suspend([1]) == ()


@pytest.mark.parametrize(
    ("kind", "driver", "able"),
    [("cuda", "570.86.10", True), ("cuda", "565.57.01", False), ("cuda", "", False), ("rocm", "6.8", False)],
)
def test_the_driver_must_be_new_enough(folder: Path, kind: str, driver: str, able: bool) -> None:
    assert can_suspend([Accelerator(kind=kind, name="A", memory_bytes=1, driver=driver)]) == able  # type: ignore[arg-type]
    assert not can_suspend([])


def test_suspension_needs_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not can_suspend([Accelerator(kind="cuda", name="A", memory_bytes=1, driver="570.1")])


def test_a_program_that_hangs_or_cannot_be_started_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SuspensionFailedError, match="cuda-checkpoint cannot be started: No such file"):
        Suspender("/absent/cuda-checkpoint").restore([1])

    def hangs(*words: str) -> None:
        raise subprocess.TimeoutExpired(words, 300)

    monkeypatch.setattr(suspension.subprocess, "run", lambda words, **_: hangs(*words))
    with pytest.raises(SuspensionFailedError, match="took more than 300 s to restore it"):
        Suspender("cuda-checkpoint").restore([1])
    assert Suspender("cuda-checkpoint").suspend([1]) == (), "its state is unknown"
