"""Processes that disturb each other on a device: memory of one that has ended stays taken, and work goes slower while
another one works."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated.environment import SimulatedDevice

from hotlap.records import Assignment, Isolation, Stopped, TurnRequest, Workload
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
held = torch.empty({held}, dtype=torch.uint8, device="cuda")
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(64, 256, device="cuda")
while True:
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
"""

LAUNCHING = """
import sys
from pathlib import Path
from hotlap.records import Assignment, Isolation, LaunchRequest, TurnRequest, Workload
from hotlap.trial import teardown
from hotlap.trial.local import LocalExecutor

if sys.argv[1] == "at once":
    teardown._LIMIT_SECONDS = 0.0
folder = Path.cwd()
workload = Workload(kind="script", target=str(folder / "train.py"), directory=str(folder), python=sys.executable)
shared = Isolation(mode="none", unprotected=True)  # in namespaces a simulated device is each arm's own
executor = LocalExecutor(folder / "runs", isolation=shared)
executor._teardown._limit_seconds = teardown._LIMIT_SECONDS
arm = Assignment(workload=workload)
for _ in range(2):
    print(type(executor.launch(LaunchRequest(assignment=arm, steps=5)).ending).__name__)
turns = executor.take_turns(TurnRequest(arms=(arm, arm), rounds=2, block_seconds=0.01, interleaved=False))
print(*(type(it.ending).__name__ for it in turns.runs))
"""


@pytest.mark.parametrize(
    ("patience", "seconds", "expected"), [("patiently", 5, "Stopped"), ("at once", 3600, "OutOfMemory")]
)
def test_a_launch_waits_for_the_memory_of_the_one_before(
    device: Callable[..., SimulatedDevice], tmp_path: Path, patience: str, seconds: int, expected: str
) -> None:
    """It takes five seconds until a process's memory is back; while it takes, a second launch finds no room."""
    (tmp_path / "train.py").write_text(TRAINING.format(held=10 * 10**9), encoding="utf-8")
    (tmp_path / "hotlap").write_text(LAUNCHING, encoding="utf-8")  # of this name, since hotlap's own time is real
    done = subprocess.run(
        [sys.executable, "hotlap", patience],
        env={**os.environ, **device("t4", scenario=f"[device.rates]\nteardown_seconds = {seconds}\n").variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second, *arms = done.stdout.split()
    assert (first, second) == ("Stopped", expected)
    if patience == "patiently":
        assert arms == ["Stopped", "Stopped"]


BUSY = """
import os, sys, time
import torch

theirs, mine = map(int, sys.argv[1:])  # pipes: both launch in turn, however the processor is shared
numbers = torch.zeros(1000, device="cuda")
torch.cuda.synchronize()
os.write(mine, b"x"), os.read(theirs, 1)
began = time.perf_counter()
for _ in range(300):
    numbers.add_(1)
    os.write(mine, b"x"), os.read(theirs, 1)
torch.cuda.synchronize()
print(time.perf_counter() - began)
"""
CONTENTION = "[device.rates]\ncontention = 10\nshortest_kernel_nanoseconds = 100_000\n"


def test_work_takes_longer_while_another_process_works(device: Callable[..., SimulatedDevice], tmp_path: Path) -> None:
    made = device("t4", scenario=CONTENTION)
    (tmp_path / "busy.py").write_text(BUSY, encoding="utf-8")

    def seconds(*pipes: tuple[int, int]) -> list[float]:
        started = [
            subprocess.Popen(
                [sys.executable, "busy.py", *map(str, it)],
                env={**os.environ, **made.variables},
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=it,
            )
            for it in pipes
        ]
        return [float(it.communicate(timeout=300)[0]) for it in started]

    (one, to_one), (other, to_other) = os.pipe(), os.pipe()
    try:
        (alone,) = seconds((one, to_one))
        both = seconds((one, to_other), (other, to_one))
    finally:
        for it in (one, to_one, other, to_other):
            os.close(it)
    assert alone == pytest.approx(0.03, rel=0.2)
    assert max(both) > 5 * alone


def test_arms_that_take_turns_never_meet(device: Callable[..., SimulatedDevice], tmp_path: Path) -> None:
    """Their set-ups do, and libraries that time their kernels then would choose wrong ones."""
    (tmp_path / "train.py").write_text(TRAINING.format(held=0), encoding="utf-8")
    workload = Workload(
        kind="script", target=str(tmp_path / "train.py"), directory=str(tmp_path), python=sys.executable
    )

    def seconds(scenario: str) -> list[float]:
        executor = LocalExecutor(
            tmp_path / "runs",
            environment=device("t4", scenario=scenario).variables,
            isolation=Isolation(mode="none", unprotected=True),
        )
        arm = Assignment(workload=workload)
        turns = executor.take_turns(TurnRequest(arms=(arm, arm, arm), rounds=3, block_seconds=0.01))
        assert turns.interleaved and all(isinstance(it.ending, Stopped) for it in turns.runs)
        return [it for row in turns.rounds for it in row]

    crowded = seconds(CONTENTION)
    assert crowded == pytest.approx(seconds(CONTENTION.replace("contention = 10", "contention = 1")), rel=0.02)
