"""A leak of each kind is found with its line in a real launch of a whole script, and none in scripts without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.records import AccountMemory, Assignment, LaunchRequest, MemoryAccount, Observe, Workload
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

SCRIPT = """
import collections
import sys

import torch
from torch import nn

KIND = "{kind}"


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.Sequential(nn.Linear(16, 256), nn.ReLU()), nn.Linear(256, 1)
        self.features = []

    def forward(self, x):
        hidden = self.layers(x)
        if KIND == "features of the model":
            self.features.append(hidden)  # planted: features of the model
        return self.head(hidden)


class Meter:
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, value):
        self.sum = self.sum + value  # planted: meter
        self.count += 1


class Trainer:
    def __init__(self):
        self.net = Net()
        self.optimizer = torch.optim.Adam(self.net.parameters())
        self.losses, self.masks, self.meter = [], {{}}, Meter()
        self.recent = collections.deque(maxlen=4)
        self.average = torch.zeros(())

    def fit(self):
        total, outputs, activations = 0.0, [], []
        running = torch.zeros(())
        keep = lambda module, args, output: activations.append(output)  # planted: hook
        if KIND == "hook":
            self.net.layers.register_forward_hook(keep)
        for step in range(200):
            self.optimizer.zero_grad()
            output = self.net(torch.randn(32, 16))
            loss = output.square().mean()
            loss.backward()
            self.optimizer.step()
            if KIND == "summed loss":
                total = total + loss  # planted: summed loss
            if KIND == "outputs":
                outputs.append(output.detach().repeat(1, 64))  # planted: outputs
            if KIND == "losses of an object":
                self.losses.append(loss)  # planted: losses of an object
            if KIND == "meter":
                self.meter.update(loss)
            if KIND == "cache":
                self.masks[step] = torch.ones(64, 64)  # planted: cache
            if KIND == "running average":
                running = 0.9 * running + 0.1 * loss  # planted: running average
            # What may be kept: numbers, the last few, and an average without its graph.
            self.meter.count += loss.item()
            self.recent.append(output.detach())
            self.average = 0.9 * self.average + 0.1 * loss.detach()


Trainer().fit()
"""

KINDS = {
    "summed loss": "total",
    "outputs": "outputs",
    "hook": "activations",
    "losses of an object": "self.losses",
    "meter": "self.meter.sum",
    "cache": "self.masks",
    "features of the model": "self.net.features",
    "running average": "running",
}


def account(folder: Path, kind: str) -> MemoryAccount:
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT.format(kind=kind), encoding="utf-8")
    workload = Workload(kind="script", target="train.py", directory=str(folder), python=sys.executable)
    assignment = Assignment(workload=workload, instruments=(Observe(), AccountMemory(steps=16)))
    run = LocalExecutor(folder.parent / "runs").launch(LaunchRequest(assignment=assignment, steps=20))
    assert run.memory is not None, run.ending
    return run.memory


def planted_line(kind: str) -> int:
    rows = SCRIPT.format(kind=kind).splitlines()
    (line,) = [number for number, row in enumerate(rows, start=1) if row.endswith(f"# planted: {kind}")]
    return line


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_leak_is_found_with_its_line(kind: str, tmp_path: Path) -> None:
    found = account(tmp_path / "project", kind)
    first = found.growing[0]
    assert first.name == KINDS[kind]
    assert first.site is not None and first.site.line == planted_line(kind)
    assert first.holds_graph == (kind not in ("outputs", "cache"))
    assert [it.name for it in found.growing] == [KINDS[kind]], "and nothing else"


def test_a_clean_script_has_none(tmp_path: Path) -> None:
    found = account(tmp_path / "project", "none")
    assert found.growing == () and found.growth_bytes_per_step == 0
