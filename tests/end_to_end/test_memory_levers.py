"""The levers that are made for memory, in real trials of a real script: the peak of a launch with and without them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hotlap.levers.api import all_levers
from hotlap.levers.support.situations import make_setting
from hotlap.records import Assignment, AwaitEvaluation, LaunchRequest, Observe, Plan, Run, Setting, Situation, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = """\
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)
tokens = torch.randint(0, 16, (512, 128))
labels = functional.one_hot(tokens, 16).sum(1).argmax(1)
layer = nn.TransformerEncoderLayer(64, 2, 256, dropout=0.1, batch_first=True, norm_first=True)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 64), nn.Linear(64, 16)
        self.encoder = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(tokens, labels), 64, shuffle=True)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
LEVERS = (
    make_setting("activation-checkpointing", share="all"),
    make_setting("accumulation", micro_batches=4),
)


def launched(folder: Path, *settings: Setting, steps: int = 4) -> Run:
    workload = Workload(kind="script", target="train.py", directory=str(folder), python=sys.executable)
    assignment = Assignment(workload=workload, plan=Plan(settings=settings), instruments=(Observe(),))
    return LocalExecutor(folder.parent / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))


@pytest.mark.slow
def test_each_holds_at_most_four_fifths_of_what_the_unmodified_script_does(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    plain = launched(folder)
    for setting in LEVERS:
        changed = launched(folder, setting)
        assert changed.ending == plain.ending and not changed.notes
        assert 0 < changed.host_peak_bytes < 0.8 * plain.host_peak_bytes, setting.lever


EVALUATING = """\
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets = torch.randn(64, 32), torch.randn(64, 1)
held_out = torch.utils.data.TensorDataset(torch.randn(12288, 32), torch.randn(12288, 1))
model = nn.Sequential(nn.Linear(32, 512), *[nn.Sequential(nn.ReLU(), nn.Linear(512, 512)) for _ in range(8)],
    nn.Linear(512, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), 16)
validation = torch.utils.data.DataLoader(held_out, 4096)
for epoch in range(100):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        functional.mse_loss(model(x), y).backward()
        optimizer.step()
    model.eval()
    for x, y in validation:
        loss = functional.mse_loss(model(x), y).item()
"""


@pytest.mark.slow
def test_an_evaluation_without_a_graph_lowers_the_peak_of_a_run_and_changes_no_loss(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(EVALUATING)
    setting = make_setting("evaluation-without-graph")
    plain, changed = (launched(folder, *settings, steps=14) for settings in ((), (setting,)))
    assert plain.facts.evaluation is not None and plain.facts.evaluation.with_gradients
    assert changed.ending == plain.ending and not changed.notes
    assert changed.steps.loss == plain.steps.loss and len(plain.steps.loss) >= 14
    assert 0 < changed.host_peak_bytes < plain.host_peak_bytes - 20 * 2**20


@pytest.mark.slow
def test_a_launch_that_awaits_the_evaluation_has_its_peak(tmp_path: Path) -> None:
    """The epoch is longer than the steps that are asked for."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(EVALUATING.replace("randn(64, ", "randn(1600, "))
    workload = Workload(kind="script", target="train.py", directory=str(folder), python=sys.executable)
    peaks = []
    for instruments in ((), (AwaitEvaluation(most_seconds=120.0),)):
        assignment = Assignment(workload=workload, instruments=instruments)
        run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=8))
        peaks.append(run.host_peak_bytes)
    assert 0 < peaks[0] < peaks[1] - 40 * 2**20
    assert 100 < len(run.steps.wall_seconds) < 110, "and no longer than that"


CLEARED_LATE = """\
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)
samples = torch.utils.data.TensorDataset(torch.randn(512, 32), torch.randn(512, 1))
model = nn.Sequential(nn.Linear(32, 1024), *[nn.Sequential(nn.ReLU(), nn.Linear(1024, 1024)) for _ in range(16)],
    nn.Linear(1024, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(samples, 256)
for epoch in range(100):
    for x, y in loader:
        loss = functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_used_gradients_are_not_held_during_the_forward_pass_and_no_loss_changes(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(CLEARED_LATE)
    setting = make_setting("drop-used-gradients")
    plain, changed = (launched(folder, *settings, steps=14) for settings in ((), (setting,)))
    assert plain.facts.used_gradient_bytes > 60 * 2**20 and not plain.facts.keeps_gradients
    assert changed.ending == plain.ending and not changed.notes
    assert changed.steps.loss == plain.steps.loss and len(plain.steps.loss) >= 14
    assert 0 < changed.host_peak_bytes < plain.host_peak_bytes - 15 * 2**20


ACCUMULATING = """\
import torch
from torch import nn
from torch.nn import functional

torch.manual_seed(0)
torch.set_num_threads(1)
samples = torch.utils.data.TensorDataset(torch.randn(400, 32), torch.randint(0, 4, (400,)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))

    def forward(self, x):
        print("samples", len(x), flush=True)
        return self.layers(x)


model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = torch.utils.data.DataLoader(samples, 4, shuffle=True)
for epoch in range(100):
    for number, (x, y) in enumerate(loader, start=1):
        (functional.cross_entropy(model(x), y) / 4).backward()
        if number % 4 == 0:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
"""


@pytest.mark.slow
def test_larger_micro_batches_leave_every_step_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(ACCUMULATING)
    plain = launched(folder, steps=60)
    situation = Situation(facts=plain.facts)
    lever = all_levers()["larger-micro-batches"]
    assert lever.obstacle(situation) is None
    (whole, half) = lever.candidates(situation)
    for setting, together in ((whole, 16), (half, 8)):
        changed = launched(folder, setting, steps=60)
        assert changed.ending == plain.ending and not changed.notes
        assert changed.steps.samples == plain.steps.samples
        assert changed.steps.loss == pytest.approx(plain.steps.loss, rel=1e-4)
        sizes = Path(changed.output_path).read_text().split("samples ")
        assert sum(it.strip() == str(together) for it in sizes) >= 59, "after the first step"
