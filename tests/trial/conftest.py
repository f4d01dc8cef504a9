"""Real children, but fake trainers: see fake_child.py."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from hotlap.records import Assignment, Run, Workload
from hotlap.trial.local import LocalExecutor
from hotlap.trial.tree import MARK_VARIABLE

FAKE_CHILD = Path(__file__).parent / "fake_child.py"

Assign = Callable[..., Assignment]


@pytest.fixture
def assign(tmp_path: Path) -> Assign:
    """Make an assignment of the fake trainer with these command-line options."""

    def make(*arguments: object, **fields: Any) -> Assignment:
        fields = {"startup_limit_seconds": 60.0, "block_limit_seconds": 60.0, **fields}
        workload = Workload(
            kind="script",
            target=str(FAKE_CHILD),
            arguments=tuple(str(it) for it in arguments),
            directory=str(tmp_path),
            python=sys.executable,
        )
        return Assignment(workload=workload, **fields)

    return make


@pytest.fixture
def executor(tmp_path: Path) -> LocalExecutor:
    """Make an executor whose children are fake trainers without the real runtime."""
    hooks = tmp_path / "no hooks"
    hooks.mkdir()
    return LocalExecutor(tmp_path / "runs", hooks_directory=hooks, environment={"ADDED": "by the executor"})


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path) -> Iterator[None]:
    """Check after every test that no process started for it is alive."""
    yield
    assert wait_until(lambda: not living_below(tmp_path)), [it.cmdline() for it in living_below(tmp_path)]


def living_below(directory: Path) -> list[psutil.Process]:
    """List the living processes started by an executor that writes below ``directory``."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            alive = process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
        except (psutil.Error, OSError):
            continue
        ours = environment.get("HOTLAP_RUN_DIRECTORY", "").startswith(str(directory))
        if ours and alive and MARK_VARIABLE in environment:
            found.append(process)
    return found


def wait_until(true: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Wait for a condition; return whether it became true within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def diary(run: Run | Path, kind: str) -> list[dict[str, Any]]:
    """Read the fake trainer's diary entries of one kind."""
    directory = run if isinstance(run, Path) else Path(run.output_path).parent
    path = directory / "diary"
    lines = path.read_text().splitlines() if path.exists() else []
    return [entry for entry in map(json.loads, lines) if entry["kind"] == kind]


@pytest.fixture(name="diary")
def diary_fixture() -> Callable[[Run | Path, str], list[dict[str, Any]]]:
    return diary


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[[Callable[[], bool]], bool]:
    return wait_until


@pytest.fixture(name="living_below")
def living_below_fixture() -> Callable[[Path], list[psutil.Process]]:
    return living_below
