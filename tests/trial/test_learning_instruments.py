"""Launches that measure more than time: the held-out loss, the noise of gradients, the costs of blocks."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from hotlap import plan as plans_of
from hotlap.measure.gradient_noise import noise_scale
from hotlap.records import (
    Assignment,
    Instrument,
    LaunchRequest,
    MeasureBlocks,
    MeasureGradientNoise,
    Plan,
    Run,
    WatchEvaluation,
    Workload,
)
from hotlap.trial.local import LocalExecutor

SCRIPT = """
import sys
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

batch_size = int(sys.argv[sys.argv.index("--batch-size") + 1]) if "--batch-size" in sys.argv else 8
generator = torch.Generator().manual_seed(7)
inputs = torch.eye(4).repeat(64, 1)
noise = torch.randn(256, 1, generator=generator)
net = torch.nn.Linear(4, 1, bias=False)
torch.nn.init.zeros_(net.weight)
optimizer = torch.optim.SGD(net.parameters(), 1e-3)
loader = DataLoader(TensorDataset(inputs, 1.0 + noise), batch_size=batch_size, shuffle=True)
held_out = DataLoader(TensorDataset(inputs[:32], torch.ones(32, 1)), batch_size=16)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        loss = mse_loss(net(x), y)
        loss.backward()
        CLIP
        optimizer.step()
    with torch.no_grad():
        for x, y in held_out:
            mse_loss(net(x), y)
        mse_loss(torch.zeros(1), torch.ones(1)) if epoch > 90 else None
"""


def launch(folder: Path, *instruments: Instrument, steps: int, clip: str = "", plan: Plan = plans_of.EMPTY,
           arguments: tuple[str, ...] = (), script: str = SCRIPT) -> Run:  # fmt: skip
    (folder / "train.py").write_text(dedent(script).replace("CLIP", clip or "pass"), encoding="utf-8")
    workload = Workload(
        kind="script", target="train.py", arguments=arguments, directory=str(folder), python=sys.executable
    )
    assignment = Assignment(workload=workload, plan=plan, instruments=instruments, startup_limit_seconds=120.0)
    return LocalExecutor(folder / "runs").launch(LaunchRequest(assignment=assignment, steps=steps))


def test_the_held_out_loss_is_the_mean_over_the_evaluated_samples(tmp_path: Path) -> None:
    run = launch(tmp_path, WatchEvaluation(), steps=70)
    assert [(it.step, it.trained, it.samples) for it in run.evaluations] == [(32, 256, 32), (64, 512, 32)]
    first, second = run.evaluations
    assert 0.8 < second.loss < first.loss < 1.0, "the weights move from 0 to 1"


def test_a_larger_batch_is_evaluated_after_as_many_samples(tmp_path: Path) -> None:
    larger = Plan(settings=(plans_of.setting("batch-size", own=8, size=32),))
    run = launch(tmp_path, WatchEvaluation(), steps=10, plan=larger)
    assert [(it.step, it.trained) for it in run.evaluations] == [(8, 256)]
    by_option = Plan(settings=(plans_of.setting("batch-size", own=8, size=32, flag="--batch-size"),))
    run = launch(tmp_path, WatchEvaluation(), steps=10, plan=by_option, arguments=("--batch-size", "8"))
    assert set(run.steps.samples) == {32}


@pytest.mark.parametrize(
    "clip", [pytest.param("", marks=pytest.mark.slow), "torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)"]
)
def test_the_noise_scale_of_a_known_problem(tmp_path: Path, clip: str) -> None:
    run = launch(tmp_path, MeasureGradientNoise(groups=8, gradients=8), steps=64, clip=clip)
    assert len(run.gradient_groups) == 8 and not run.notes
    found = noise_scale(run.gradient_groups)
    # At weights of 0 the gradient of one sample is 2 (1 + noise) in one of 4 directions: its mean has the squared norm
    # 4 * (2 / 4)^2 = 1, and the trace of its covariance is 4 * (1 + 1) - 1 = 7.
    assert found is not None and found.samples == 8
    assert found.low < 7.0 < (found.high or 0.0)


def test_weights_move_only_at_the_end_of_a_group(tmp_path: Path) -> None:
    run = launch(tmp_path, MeasureGradientNoise(groups=2, gradients=4), WatchEvaluation(), steps=40)
    plain = launch(tmp_path, WatchEvaluation(), steps=40)
    assert run.evaluations[0].loss > plain.evaluations[0].loss, "6 of 32 updates were left out"
    assert len(run.steps.wall_seconds) == len(plain.steps.wall_seconds)


BLOCKS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.into, self.out = nn.Linear(16, width), nn.Linear(width, 16)

    def forward(self, x):
        return x + self.out(torch.tanh(self.into(x)))

net = nn.Sequential(*[Block(width) for width in (16, 256, 64)])
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(100):
    optimizer.zero_grad()
    net(torch.randn(32, 16)).square().mean().backward()
    optimizer.step()
"""


def test_each_block_is_measured(tmp_path: Path) -> None:
    run = launch(tmp_path, MeasureBlocks(), steps=6, script=BLOCKS)
    # Of each block the output of tanh is kept; its input is the output of the block before.
    assert [it.saved_bytes for it in run.block_costs] == [32 * width * 4 for width in (16, 256, 64)]
    assert all(it.forward_seconds > 0 for it in run.block_costs)
