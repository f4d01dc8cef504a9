"""Trials of a script on a simulated device: the same figures at any time and on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated.environment import SimulatedDevice

from hotlap.levers.support.situations import make_setting
from hotlap.records import Assignment, LaunchRequest, Observe, Plan, Run, Setting, Stopped, TurnRequest, Workload
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

TRAINING = """
import torch
from torch import nn

ROWS, WIDTH, BATCH = {rows}, {width}, {batch}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(ROWS, WIDTH) if ROWS else None
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH)).cuda()

    def forward(self, inputs):
        if self.embedding is not None:
            inputs = self.embedding(inputs).cuda()
        return self.layers(inputs)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randint(ROWS, (BATCH,)) if ROWS else torch.randn(BATCH, WIDTH).cuda()
for _ in range(100_000):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
"""

Lab = Callable[..., tuple[LocalExecutor, Assignment]]


@pytest.fixture
def lab(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Lab:
    def made(
        kind: str = "a100", *settings: Setting, width: int = 512, batch: int = 256, rows: int = 0
    ) -> tuple[LocalExecutor, Assignment]:
        script = tmp_path / "train.py"
        script.write_text(TRAINING.format(width=width, batch=batch, rows=rows), encoding="utf-8")
        workload = Workload(kind="script", target=str(script), directory=str(tmp_path), python=sys.executable)
        executor = LocalExecutor(tmp_path / "runs", environment=device(kind).variables)
        return executor, Assignment(workload=workload, plan=Plan(settings=settings), instruments=(Observe(),))

    return made


def launched(executor: LocalExecutor, assignment: Assignment, steps: int = 20) -> Run:
    run = executor.launch(LaunchRequest(assignment=assignment, steps=steps))
    assert isinstance(run.ending, Stopped), run.ending
    return run


def test_two_launches_take_the_same_time(lab: Lab) -> None:
    first, second = (launched(*lab()) for _ in range(2))
    assert first.steps.wall_seconds[5:] == second.steps.wall_seconds[5:]
    assert first.facts.device == "cuda" and first.device_peak_bytes > 0
    assert first.device_footprint_bytes > first.device_peak_bytes + 300e6, "the context counts"


def test_arms_take_turns_on_the_device(lab: Lab) -> None:
    """They wait for each other before their first step, and nothing differs between them afterwards."""
    executor, arm = lab()
    turns = executor.take_turns(TurnRequest(arms=(arm, arm, arm), rounds=3, block_seconds=0.01))
    assert turns.interleaved
    assert all(isinstance(run.ending, Stopped) for run in turns.runs)
    for row in zip(*turns.rounds, strict=True):
        assert max(row) == pytest.approx(min(row), rel=1e-6)


def test_a_model_with_an_embedding_on_the_host_is_timed_on_the_device(lab: Lab) -> None:
    run = launched(*lab(rows=100_000))
    assert run.facts.device == "cuda"
    assert sum(run.steps.seconds_in("host_to_device")[5:]) > 0


def test_float16_skips_no_step_and_is_faster(lab: Lab) -> None:
    half = make_setting("mixed-precision", dtype="float16")
    plain, tuned = (launched(*lab("t4", *levers, width=1024, batch=1024)) for levers in ((), (half,)))
    assert tuned.scaler_skipped_steps == 0
    assert tuned.steps.loss[0] == pytest.approx(plain.steps.loss[0], rel=0.01)
    assert sum(tuned.steps.wall_seconds[5:]) < 0.7 * sum(plain.steps.wall_seconds[5:])


REPLAYED = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
inputs, labels = torch.zeros(32, 64, device="cuda"), torch.zeros(32, dtype=torch.long, device="cuda")


def step():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss


stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    loss = step()
for _ in range(100_000):
    inputs.copy_(torch.randn(32, 64))
    labels.copy_(torch.randint(10, (32,)))
    graph.replay()
"""


def test_replayed_steps_are_counted_timed_and_compared(lab: Lab) -> None:
    """Its whole step is a CUDA graph: no module, no backward and no optimizer is called any more."""
    executor, assignment = lab()
    Path(assignment.workload.target).write_text(REPLAYED, encoding="utf-8")
    first, again = (launched(executor, assignment) for _ in range(2))
    assert len(first.steps.wall_seconds) >= 20
    assert first.steps.loss == again.steps.loss
    assert len(set(first.steps.loss[3:])) > 10, "each replay has its own loss"
    assert first.steps.wall_seconds[8] == again.steps.wall_seconds[8] < first.steps.wall_seconds[2] / 5
    assert any("CUDA graphs" in it for it in first.notes)
