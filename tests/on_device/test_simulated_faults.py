"""What goes wrong on devices: a library finds no memory, sums differ from run to run, float16 overflows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulated.environment import SimulatedDevice

from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    Assignment,
    Completed,
    Crashed,
    Isolation,
    LaunchRequest,
    Plan,
    Replicate,
    Setting,
    Stopped,
    TurnRequest,
    Workload,
)
from hotlap.trial.local import LocalExecutor

pytestmark = pytest.mark.slow

TRAINING = """
import torch
from torch import nn

torch.manual_seed(0)
held = torch.empty({held}, dtype=torch.uint8, device="cuda")
table, model = nn.Embedding(50, 16).cuda(), nn.Linear(16, 4).cuda()
optimizer = torch.optim.SGD([*table.parameters(), *model.parameters()], lr=0.1)
words, labels = torch.randint(50, (64, 8), device="cuda"), torch.randint(4, (64,), device="cuda")
for _ in range(20):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(table(words).mean(1)), labels) * {scale}
    loss.backward()
    optimizer.step()
"""

SLICE = "NVIDIA A100-SXM4-40GB MIG 3g.20gb"

Trial = Callable[..., Any]


def doctor(variables: dict[str, str], folder: Path) -> dict[str, Any]:
    """What ``hotlap doctor --json`` prints with these variables."""
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "doctor", "--json"],
        env={**os.environ, **variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def trial(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Trial:
    def launched(scenario: str = "", *settings: Setting, held: int = 0, scale: float = 1.0) -> Any:
        script = tmp_path / "train.py"
        script.write_text(TRAINING.format(held=held, scale=scale), encoding="utf-8")
        workload = Workload(kind="script", target=str(script), directory=str(tmp_path), python=sys.executable)
        executor = LocalExecutor(tmp_path / "runs", environment=device("t4", scenario=scenario).variables)
        assignment = Assignment(workload=workload, plan=Plan(settings=settings))
        return executor.launch(LaunchRequest(assignment=assignment, steps=10**6))

    return launched


@pytest.fixture
def two_arms(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Callable[[str], Replicate]:
    def taken(scenario: str) -> Replicate:
        script = tmp_path / "train.py"
        script.write_text(TRAINING.format(held=0, scale=1.0).replace("range(20)", "range(10**6)"), encoding="utf-8")
        workload = Workload(kind="script", target=str(script), directory=str(tmp_path), python=sys.executable)
        variables = device("t4", scenario=scenario).variables
        shared = Isolation(mode="none", unprotected=True)  # in namespaces a simulated device is each arm's own
        executor = LocalExecutor(tmp_path / "runs", environment=variables, isolation=shared)
        arms = (Assignment(workload=workload), Assignment(workload=workload))
        return executor.take_turns(TurnRequest(arms=arms, rounds=4, block_seconds=0.01))

    return taken


def test_a_library_that_finds_no_memory_says_so_in_its_own_way(trial: Trial) -> None:
    scenario = "[device.rates]\nhandle_bytes = 1e9\n"
    assert trial(scenario).ending == Completed()
    full = trial(scenario, held=15 * 10**9)
    assert isinstance(full.ending, Crashed) and "CUBLAS_STATUS_NOT_INITIALIZED" in full.ending.error


def test_sums_in_any_order_differ_from_run_to_run(trial: Trial) -> None:
    noisy = "[device.rates]\natomic_noise = 1e-6\n"
    same, other = ([list(trial(it).steps.loss) for _ in range(2)] for it in ("", noisy))
    assert same[0] == same[1]
    assert other[0] != other[1]
    assert other[1] == pytest.approx(other[0], rel=1e-4)


def test_float16_that_overflows_at_first_skips_steps_and_goes_on(trial: Trial) -> None:
    """The scaler begins at 2**16: with losses of some hundred thousand its first gradients are infinite."""
    half = make_setting("mixed-precision", dtype="float16")
    plain, tuned = trial(scale=1e3), trial("", half, scale=1e3)
    assert tuned.ending == Completed()
    assert tuned.scaler_skipped_steps > 0
    assert tuned.steps.loss[0] == pytest.approx(plain.steps.loss[0], rel=0.01)


def test_a_container_without_the_drivers_library_finds_its_device(device: Any, tmp_path: Path) -> None:
    """torch itself reports what the driver would, in a child."""
    variables = device("a100").variables
    del variables["LD_LIBRARY_PATH"]
    (found,) = doctor(variables, tmp_path)["machine"]["accelerators"]
    assert found["name"] == "NVIDIA A100-SXM4-40GB" and found["capability"] == "8.0"
    assert "bfloat16" in found["native_dtypes"]


def test_a_device_that_takes_one_process_at_a_time_is_measured_so(two_arms: Callable[[str], Replicate]) -> None:
    """Clusters set this mode: the second arm finds the device busy, and whole launches are alternated."""
    found = two_arms("[device.rates]\nexclusive = 1\n")
    assert not found.interleaved
    assert [it.ending for it in found.runs] == [Stopped(), Stopped()]
    assert [len(it) for it in found.rounds] == [4, 4]


def test_a_slice_of_a_device_is_reported_as_the_slice(device: Any, tmp_path: Path) -> None:
    """MIG: the driver knows the slice by its own identifier, and neither its power nor its clock."""
    scenario = f"""
[device]
name = "{SLICE}"
memory_bytes = 20_937_965_568
multiprocessors = 42
slice_uuid = "MIG-7c1c8a6a-3b2f-5f0e-9a53-0d3f5d2f7a11"
"""
    (found,) = doctor(device("a100", scenario=scenario).variables, tmp_path)["machine"]["accelerators"]
    assert (found["name"], found["memory_bytes"]) == (SLICE, 20_937_965_568)
    assert found["capability"] == "8.0" and "bfloat16" in found["native_dtypes"]
    assert found["driver"] and found.get("power_limit_watts") is None
