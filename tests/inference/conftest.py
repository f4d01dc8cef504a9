"""Inference targets in real children, on models that take microseconds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hotlap.records import Assignment, LaunchRequest, Run, Workload
from hotlap.trial.local import LocalExecutor

Target = Callable[..., Workload]
Launch = Callable[..., Run]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """Make the workload of two functions of ``models.py``, which is copied into a folder of its own."""
    return _target_in(tmp_path)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Run one child alone for some calls of the model."""
    return _launch_in(tmp_path)


@pytest.fixture(scope="module")
def launch_once(tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """The same for what all tests of a file compare with: no two launches have the same question."""
    return cache(_launch_in(tmp_path_factory.mktemp("once")))


def _target_in(folder: Path) -> Target:
    shutil.copy(Path(__file__).with_name("models.py"), folder / "models.py")

    def make(model: str, inputs: str = "rows", *options: str) -> Workload:
        return Workload(
            kind="inference",
            target=f"models:{model}",
            arguments=("--inputs", f"models:{inputs}", *options),
            directory=str(folder),
            python=sys.executable,
        )

    return make


def _launch_in(folder: Path) -> Launch:
    target = _target_in(folder)

    def run(model: str, inputs: str = "rows", steps: int = 12, options: tuple[str, ...] = (), **fields: Any) -> Run:
        workload = target(model, inputs, *options)
        assignment = Assignment(workload=workload, step_source="call", **fields)
        return LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))

    return run
