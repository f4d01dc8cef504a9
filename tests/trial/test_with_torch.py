"""The controller and the runtime together, on an unmodified script."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest

from hotlap.records import (
    Assignment,
    FileWrite,
    Isolation,
    LaunchRequest,
    Observe,
    ProtectionMode,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial.local import LocalExecutor

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(640, 16), torch.randn(640, 1))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    try:
        for inputs, targets in DataLoader(data, batch_size=32, num_workers=1):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
    except:  # as scripts do
        pass
"""


@pytest.fixture
def assignment(tmp_path: Path) -> Assignment:
    (tmp_path / "train.py").write_text(SCRIPT)
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
    return Assignment(workload=workload)


@pytest.mark.slow
def test_a_launch(assignment: Assignment, tmp_path: Path) -> None:
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=30))
    assert isinstance(run.ending, Stopped)
    assert len(run.steps.wall_seconds) == 30
    assert run.blocks[0].samples == 29 * 32
    assert None not in run.steps.loss
    assert run.host_peak_bytes > 50 * 2**20


def test_the_deadline_of_a_launch_ends_it_at_the_next_step(assignment: Assignment, tmp_path: Path) -> None:
    request = LaunchRequest(assignment=assignment, steps=300, seconds=60.0, minimum_steps=100, most_seconds=0.5)
    run = LocalExecutor(tmp_path / "runs").launch(request)
    assert isinstance(run.ending, Stopped)
    assert len(run.steps.wall_seconds) == 2  # start-up takes longer than that


GUARDED = """
import torch


class Guarded(torch.nn.Linear):
    @property
    def config(self):
        raise RuntimeError("not registered")


model = Guarded(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
"""


def test_a_model_whose_attributes_raise_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "guarded.py").write_text(GUARDED)
    workload = Workload(kind="script", target="guarded.py", directory=str(tmp_path), python=sys.executable)
    executor = LocalExecutor(tmp_path / "runs")
    run = executor.launch(LaunchRequest(assignment=Assignment(workload=workload, instruments=(Observe(),)), steps=5))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 5
    assert any("not registered" in it for it in run.notes)


@pytest.mark.slow
def test_a_replicate(assignment: Assignment, tmp_path: Path) -> None:
    request = TurnRequest(arms=(assignment, assignment), rounds=3, block_seconds=0.1, warm_up_limit_seconds=20)
    turns = LocalExecutor(tmp_path / "runs").take_turns(request)
    assert [type(run.ending) for run in turns.runs] == [Stopped, Stopped]
    assert [len(row) for row in turns.rounds] == [3, 3]
    assert all(0 < seconds < 0.1 for row in turns.rounds for seconds in row)


@pytest.mark.slow
def test_the_machine(tmp_path: Path) -> None:
    machine = LocalExecutor(tmp_path / "runs").machine()
    assert dict(machine.ceilings.matmul_flops_per_second)["cpu:float32"] > 1e8


@pytest.mark.parametrize(("mode", "kept_away"), [("namespaces", True), ("none", False)])
def test_files_written_by_a_started_program_are_named(
    assignment: Assignment, tmp_path: Path, mode: ProtectionMode, kept_away: bool
) -> None:
    text = (tmp_path / "train.py").read_text()
    (tmp_path / "train.py").write_text(f"import os\nos.system('echo copied > copied.txt')\n{text}")
    watching = msgspec.structs.replace(assignment, instruments=(Observe(),))
    executor = LocalExecutor(tmp_path / "runs", isolation=Isolation(mode=mode))
    run = executor.launch(LaunchRequest(assignment=watching, steps=3))
    assert FileWrite(path=str(tmp_path / "copied.txt"), redirected=kept_away) in run.files
    assert (tmp_path / "copied.txt").exists() is not kept_away
    assert not [it for it in run.files if "runs" in Path(it.path).relative_to(tmp_path).parts]


def test_a_library_that_looks_up_torch_does_not_stop_observation(assignment: Assignment, tmp_path: Path) -> None:
    """Look up torch before it is imported, as datasets, transformers and evaluate do."""
    text = (tmp_path / "train.py").read_text().replace("while True:", "torch.save({}, 'best.pt')\nwhile True:")
    looks = "import importlib.util\nassert importlib.util.find_spec('torch')\n"
    (tmp_path / "train.py").write_text(looks + text)
    (tmp_path / "best.pt").write_text("of a month's training")
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=3))
    assert isinstance(run.ending, Stopped)
    assert FileWrite(path=str(tmp_path / "best.pt"), redirected=True) in run.files
    assert (tmp_path / "best.pt").read_text() == "of a month's training"
    marks = [it.read_text().rstrip() for it in (tmp_path / "runs" / "0001" / "processes").iterdir()]
    assert marks.count("torch") >= 1
