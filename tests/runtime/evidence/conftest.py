"""Small training scripts that are run as a user's is, and the evidence of their launches."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hotlap.evidence import RunEvidence
from hotlap.records import Assignment, CollectEvidence, Instrument, LaunchRequest, Run, Workload
from hotlap.trial.local import LocalExecutor

MODEL = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(4000, 8), torch.randn(4000, 1))
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
"""

Launch = Callable[..., tuple[Run, RunEvidence]]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    """Run a script (appended to ``MODEL``) for this many steps; return the run and its evidence."""

    def run(  # type: ignore[no-untyped-def]
        script: str,
        *,
        steps: int = 16,
        profiled_steps: int = 0,
        instruments: tuple[Instrument, ...] | None = None,
        request: dict[str, Any] | None = None,
        **fields: Any,
    ):
        (tmp_path / "train.py").write_text(MODEL + textwrap.dedent(script))
        workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
        assignment = Assignment(
            workload=workload,
            instruments=(CollectEvidence(profiled_steps=profiled_steps),) if instruments is None else instruments,
            **{"startup_limit_seconds": 120.0, **fields},
        )
        found = LocalExecutor(tmp_path / "runs").launch(
            LaunchRequest(assignment=assignment, steps=steps, **(request or {}))
        )
        if not found.evidence_path:
            return found, RunEvidence()
        return found, msgspec.json.decode(Path(found.evidence_path).read_bytes(), type=RunEvidence)

    return run


@pytest.fixture
def line_of(tmp_path: Path) -> Callable[[str], int]:
    """The number of the script's line that holds this text."""

    def find(text: str) -> int:
        lines = (tmp_path / "train.py").read_text().splitlines()
        return next(number for number, line in enumerate(lines, start=1) if text in line)

    return find
