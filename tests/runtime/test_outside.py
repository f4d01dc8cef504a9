"""What an observing launch records between steps, and how long it waits for it."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from hotlap.evidence import RunEvidence
from hotlap.records import Assignment, CollectEvidence, LaunchRequest, Observe, Run, Stopped, Workload
from hotlap.trial.local import LocalExecutor

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
training, validation = DataLoader(data, batch_size=4), DataLoader(data, batch_size=2)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    model.train()
    for inputs, targets in training:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
    model.eval()
    for inputs, targets in validation:
        model(inputs)                                     # evaluated
    torch.save(model.state_dict(), "model.pt")            # saved
"""


@pytest.fixture
def observe(tmp_path: Path) -> Callable[[float], Run]:
    def run(epoch_end_seconds: float) -> Run:
        (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
        workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
        assignment = Assignment(workload=workload, instruments=(Observe(epoch_end_seconds=epoch_end_seconds),))
        return LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=12))

    return run


def test_a_launch_goes_on_up_to_the_first_evaluation(observe: Callable[[float], Run]) -> None:
    run = observe(300.0)
    assert isinstance(run.ending, Stopped)
    # An epoch has forty steps; the one after it ends the launch.
    assert len(run.steps.wall_seconds) == 41
    assert [row for row, it in enumerate(run.steps.evaluation_seconds) if it > 0] == [40]
    assert [row for row, it in enumerate(run.steps.checkpoint_seconds) if it > 0] == [40]
    lines = SCRIPT.splitlines()
    evaluation, checkpoints = run.facts.evaluation, run.facts.checkpoints
    assert evaluation is not None and evaluation.site is not None and checkpoints is not None and checkpoints.site
    assert (evaluation.forwards, evaluation.with_gradients) == (80, True)
    assert "# evaluated" in lines[evaluation.site.line - 1]
    assert checkpoints.saves == 1 and "# saved" in lines[checkpoints.site.line - 1]
    assert [(it.batch_size, it.trains, it.evaluates, it.starts) for it in run.facts.loaders] == [
        (4, True, False, 2),
        (2, False, True, 1),
    ]


def test_one_whose_epoch_is_too_long_does_not(observe: Callable[[float], Run]) -> None:
    run = observe(1e-9)
    assert len(run.steps.wall_seconds) == 12
    assert run.facts.evaluation is None and run.facts.checkpoints is None


RESIDENT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets = torch.randn(160, 8), torch.randn(160, 1)
validation = DataLoader(TensorDataset(inputs, targets), batch_size=2)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(1000):
    model.train()
    for rows in torch.arange(160).split(32):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    model.eval()
    with GRADIENTS:
        for values, wanted in validation:
            model(values)                                 # evaluated
"""


@pytest.mark.parametrize(
    ("gradients", "batch_size"),
    [
        pytest.param("torch.no_grad()", 2, marks=pytest.mark.slow),
        ("torch.enable_grad()", 2),
        ("torch.no_grad()", 160),
    ],
)
def test_where_training_has_no_loader_the_evaluations_does_not_train(
    tmp_path: Path, gradients: str, batch_size: int
) -> None:
    """Also where the evaluation is a single batch, if its gradients are off."""
    script = RESIDENT.replace("GRADIENTS", gradients).replace("batch_size=2", f"batch_size={batch_size}")
    (tmp_path / "train.py").write_text(script)
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
    assignment = Assignment(workload=workload, instruments=(Observe(), CollectEvidence()))
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=18))
    assert [(it.trains, it.evaluates) for it in run.facts.loaders] == [(False, True)]
    evaluation = run.facts.evaluation
    # Without gradients it is known for an evaluation by its first batch, before any forward.
    assert evaluation is not None and evaluation.site is not None
    assert "# evaluated" in script.splitlines()[evaluation.site.line - 1]
    evidence = msgspec.json.decode(Path(run.evidence_path).read_bytes(), type=RunEvidence)
    assert evidence.loaders == () and evidence.datasets == ()


ONE_BATCH = """
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
inputs, targets = torch.randn(4, 8), torch.randn(4, 1)
held_out, wanted = torch.randn(64, 8), torch.randn(64, 1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(1000):
    extra = 0.0
    if step % EVERY == EVERY - 1:
        model.eval()
        output = model(held_out)                          # evaluated
        model.train()
        extra = USE
    optimizer.zero_grad()
    (nn.functional.mse_loss(model(inputs), targets) + extra).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("every", "use", "rows"),
    [
        pytest.param(10, "0.0 * nn.functional.mse_loss(output, wanted).item()", [9, 19], id="an evaluation"),
        pytest.param(10, "0.1 * nn.functional.mse_loss(output, wanted)", [], id="a part of the loss"),
        pytest.param(
            1, "0.1 * output.detach().mean() * model(inputs).mean()", [], id="its own teacher", marks=pytest.mark.slow
        ),
    ],
)
def test_an_evaluation_of_one_batch_is_known_by_the_backward_pass_that_does_not_reach_it(
    tmp_path: Path, every: int, use: str, rows: list[int]
) -> None:
    (tmp_path / "train.py").write_text(ONE_BATCH.replace("EVERY", str(every)).replace("USE", use))
    workload = Workload(kind="script", target="train.py", directory=str(tmp_path), python=sys.executable)
    assignment = Assignment(workload=workload, instruments=(Observe(epoch_end_seconds=1e-9),))
    run = LocalExecutor(tmp_path / "runs").launch(LaunchRequest(assignment=assignment, steps=24))
    assert [row for row, it in enumerate(run.steps.evaluation_seconds) if it > 0] == rows
    evaluation = run.facts.evaluation
    if not rows:
        assert evaluation is None
        return
    assert evaluation is not None and (evaluation.forwards, evaluation.with_gradients) == (2, True)
    assert evaluation.site is not None and "# evaluated" in ONE_BATCH.splitlines()[evaluation.site.line - 1]
    assert set(run.steps.samples) == {4}, "what was evaluated is not trained on"
