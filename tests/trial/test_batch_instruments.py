"""Launches at another batch size, on the largest samples, that end before memory is exhausted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from hotlap.measure.trend import settled_growth
from hotlap.records import (
    Assignment,
    GuardMemory,
    Instrument,
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

SCRIPT = """
import torch
from torch.utils.data import DataLoader, Dataset

class Texts(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        return torch.ones(300 if index == 377 else 4, 2)

def pad(samples):
    return torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)

net = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(net.parameters(), 1e-6)
loader = DataLoader(Texts(), batch_size=4, collate_fn=pad)
check = DataLoader(Texts(), batch_size=4, collate_fn=pad)
for epoch in range(100):
    for number, batch in enumerate(loader):
        if number < 12 and epoch == 0:
            print("shape", tuple(batch.shape)[:2], flush=True)
        try:
            loss = net(batch).sum()
        except RuntimeError:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("other", len(next(iter(check))), flush=True)
"""

Launch = Callable[..., tuple[Run, str]]


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    def run(*instruments: Instrument, script: str = SCRIPT, steps: int = 9) -> tuple[Run, str]:
        (tmp_path / "train.py").write_text(dedent(script), encoding="utf-8")
        workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
        assignment = Assignment(workload=workload, instruments=instruments, startup_limit_seconds=120.0)
        found = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))
        return found, Path(found.output_path).read_text(encoding="utf-8")

    return run


def test_only_the_training_loader_gets_the_batch_size(launch: Launch) -> None:
    plain, _ = launch()
    site = plain.facts.loaders[0].site
    assert site is not None and set(plain.steps.samples) == {4}
    run, output = launch(ResizeBatches(own=4, size=16, site=site), steps=30)
    assert isinstance(run.ending, Stopped), run.ending
    assert set(run.steps.samples) == {16, 16 + 4}  # between the epochs a batch of the other loader is read
    assert "other 4" in output


def test_memory_at_the_end_of_each_step_shows_growth(launch: Launch) -> None:
    keeps = SCRIPT.replace("    optimizer.step()", "    optimizer.step()\n        kept.append(torch.zeros(1 << 18))")
    run, _ = launch(WatchMemory(), script="kept = []\n" + keeps, steps=20)
    rows = run.step_end_bytes
    assert len(rows) == len(run.steps.wall_seconds) and settled_growth(rows) == pytest.approx(1 << 20, rel=0.1)


def test_the_largest_samples_are_in_an_early_batch(launch: Launch) -> None:
    run, output = launch(ResizeBatches(own=4, size=8), LargestSamples())
    shapes = [it for it in output.splitlines() if it.startswith("shape")]
    assert "shape (8, 300)" in shapes and shapes.count("shape (8, 4)") >= 5
    assert set(run.steps.samples) == {8}


@pytest.mark.slow
def test_samples_of_one_size_keep_their_order(launch: Launch) -> None:
    _, output = launch(LargestSamples(), script=SCRIPT.replace("300 if index == 377 else 4", "4"))
    assert {it for it in output.splitlines() if it.startswith("shape")} == {"shape (4, 4)"}


CATCHES = SCRIPT.replace(
    "net = torch.nn.Linear(2, 1)",
    """class Net(torch.nn.Linear):
    def forward(self, batch):
        if len(batch) > 8:
            raise RuntimeError("CUDA out of memory")
        return super().forward(batch)
net = Net(2, 1)""",
)


def test_out_of_memory_is_detected_if_the_script_catches_it(launch: Launch) -> None:
    fits, _ = launch(ResizeBatches(own=4, size=8), WatchFailedPasses(), script=CATCHES)
    assert isinstance(fits.ending, Stopped), fits.ending
    run, _ = launch(ResizeBatches(own=4, size=16), WatchFailedPasses(), script=CATCHES)
    assert isinstance(run.ending, OutOfMemory) and "catches the error itself" in run.ending.error


def test_a_launch_ends_at_the_memory_headroom(launch: Launch) -> None:
    """End at once with an impossible headroom, and not at all with a tiny one."""
    run, _ = launch(GuardMemory(headroom=0.9999), steps=1000)
    assert isinstance(run.ending, OutOfMemory) and "must stay free" in run.ending.error
    free, _ = launch(GuardMemory(headroom=0.0001))
    assert isinstance(free.ending, Stopped), free.ending
