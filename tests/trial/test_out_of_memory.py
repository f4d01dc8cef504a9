"""Out of memory anywhere in a script is an outcome with its batch size and leaves nothing behind."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hotlap.records import (
    Assignment,
    GuardMemory,
    LargestSamples,
    LaunchRequest,
    OutOfMemory,
    ResizeBatches,
    Run,
    Stopped,
    WatchFailedPasses,
    WatchMemory,
    Workload,
)
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

PLACE = "{place}"
TOO_MUCH = 1 << 46  # elements: more bytes than a process has addresses

def full(place, samples):
    if place == PLACE and samples > {fits}:
        torch.empty(TOO_MUCH)

class Rows(Dataset):
    def __len__(self):
        return 640
    def __getitem__(self, index):
        return torch.ones(4)

def collate(rows):
    full("worker", len(rows))
    return torch.stack(rows)

net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
loader = DataLoader(Rows(), batch_size=4, collate_fn=collate, num_workers={workers})
step = 0
for epoch in range(1000):
    for batch in loader:
        step += 1
        if step == 1:
            full("first step", len(batch))
        if step == 200:
            full("step 200", len(batch))
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        net(batch)
        full("evaluation", len(batch))
    net.train()
"""
STEPS = 300
GUARDS = (LargestSamples(), WatchFailedPasses(), WatchMemory(), GuardMemory(headroom=0.001))

CATCHES = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset

WAY, PLACE, TOO_MUCH = "{way}", "{place}", 1 << 46

def full(place, samples):
    if place == PLACE and samples > {fits}:
        torch.empty(TOO_MUCH)

class Layer(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x * 1.0
    @staticmethod
    def backward(context, gradient):
        full("backward", len(gradient))
        return gradient * 1.0

class Net(torch.nn.Linear):
    def forward(self, x):
        full("forward", len(x))
        return super().forward(Layer.apply(x.requires_grad_()))

class Optimizer(torch.optim.SGD):
    def step(self, closure=None):
        full("update", len(batch))
        return super().step(closure)

net = Net(4, 1)
optimizer = Optimizer(net.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.ones(640, 4)), batch_size=4)
for epoch in range(1000):
    for (batch,) in loader:
        while True:
            try:
                optimizer.zero_grad()
                net(batch).square().mean().backward()
                optimizer.step()
            except RuntimeError as error:
                if WAY == "halves":
                    batch = batch[: len(batch) // 2]
                    continue
                if WAY == "ends":
                    sys.exit(0)
                if WAY == "says so":
                    sys.exit("This batch is too large.")
            break
"""

Launch = Callable[..., Run]


def workload_of(folder: Path, place: str, way: str = "") -> Workload:
    folder.mkdir(exist_ok=True)
    text = (CATCHES if way else SCRIPT).format(place=place, fits=8, workers=1 if place == "worker" else 0, way=way)
    (folder / "train.py").write_text(text, encoding="utf-8")
    return Workload(kind="script", target="train.py", directory=str(folder), python=sys.executable)


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    def run(place: str, size: int, way: str = "") -> Run:
        workload = workload_of(tmp_path / "project", place, way)
        asked = (ResizeBatches(own=4, size=size), *GUARDS)
        assignment = Assignment(workload=workload, instruments=asked, startup_limit_seconds=120.0)
        return LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=STEPS))

    return run


def surroundings(folder: Path) -> tuple[object, ...]:
    """Collect what a launch must not change: project files, shared memory, descriptors, process settings."""
    return (
        {it.name: it.read_bytes() for it in folder.rglob("*") if it.is_file()},
        sorted(it.name for it in Path("/dev/shm").iterdir()),
        len(os.listdir("/proc/self/fd")),  # noqa: PTH208
        Path("/proc/self/oom_score_adj").read_text(),
        dict(os.environ),
    )


@pytest.mark.parametrize(
    ("place", "earliest"), [("first step", 0), ("worker", 0), ("evaluation", 30), ("step 200", 199)]
)
def test_out_of_memory_is_an_outcome_of_one_batch_size(launch: Launch, place: str, earliest: int) -> None:
    fits = launch(place, 8)
    assert isinstance(fits.ending, Stopped), fits.ending
    full = launch(place, 16)
    assert isinstance(full.ending, OutOfMemory), full.ending
    assert "allocate memory" in full.ending.error.lower() and full.ending.steps_done >= earliest


@pytest.mark.parametrize("way", ["goes on", "halves", "ends", "says so"])
@pytest.mark.parametrize("place", ["forward", "backward", "update"])
def test_a_script_that_catches_the_error_is_one_whose_batch_does_not_fit(launch: Launch, place: str, way: str) -> None:
    full = launch(place, 16, way)
    assert isinstance(full.ending, OutOfMemory), full.ending
    assert "catches the error itself" in full.ending.error and full.ending.steps_done == 0


@pytest.mark.parametrize("place", ["forward", "update"])
def test_one_that_would_catch_it_runs_at_a_size_that_fits(launch: Launch, place: str) -> None:
    fits = launch(place, 8, "halves")
    assert isinstance(fits.ending, Stopped), fits.ending
    assert len(fits.steps.wall_seconds) >= STEPS


def test_ten_out_of_memory_launches_leave_nothing_behind(launch: Launch, tmp_path: Path) -> None:
    """Rely on the folder's fixture to check that no process is left."""
    launch("worker", 16)
    before = surroundings(tmp_path / "project")
    for _ in range(10):
        assert isinstance(launch("worker", 16).ending, OutOfMemory)
    assert surroundings(tmp_path / "project") == before
