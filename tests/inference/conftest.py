"""Inference targets in real children, on models that take microseconds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
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
    shutil.copy(Path(__file__).with_name("models.py"), tmp_path / "models.py")

    def make(model: str, inputs: str = "rows", *options: str) -> Workload:
        return Workload(
            kind="inference",
            target=f"models:{model}",
            arguments=("--inputs", f"models:{inputs}", *options),
            directory=str(tmp_path),
            python=sys.executable,
        )

    return make


@pytest.fixture
def launch(target: Target, tmp_path: Path) -> Launch:
    """Run one child alone for some calls of the model."""

    def run(model: str, inputs: str = "rows", steps: int = 12, options: tuple[str, ...] = (), **fields: Any) -> Run:
        workload = target(model, inputs, *options)
        assignment = Assignment(workload=workload, step_source="call", **fields)
        return LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))

    return run
