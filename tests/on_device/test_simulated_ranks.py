"""`hotlap profile` of a script on two simulated devices: what the ranks exchange while nothing else runs is found."""

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

pytestmark = pytest.mark.slow

TRAINING = """\
import os, sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

rank, rows = int(os.environ["LOCAL_RANK"]), int(sys.argv[1])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
torch.manual_seed(0)
layers = [nn.Linear(1024, 1024, bias=False) for _ in range(4)]
model = DistributedDataParallel(nn.Sequential(*layers).cuda(), bucket_cap_mb=5)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, fused=True)
inputs = torch.randn(rows, 1024, device="cuda")
for _ in range(100_000):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
"""
SCENARIO = "[device.rates]\nhollow_bytes = 200_000\n"


def profiled(device: SimulatedDevice, folder: Path, rows: int) -> dict[str, dict[str, Any]]:
    """The findings by rule."""
    (folder / "train.py").write_text(TRAINING, encoding="utf-8")
    command = ["torchrun", "--nproc-per-node", "2", "train.py", str(rows)]
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "profile", "--json", *command],
        env={**os.environ, **device.variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {it["rule"]: it for it in json.loads(done.stdout)["findings"]}


def test_an_exchange_with_little_to_hide_behind_is_found(
    device: Callable[..., SimulatedDevice], tmp_path: Path
) -> None:
    found = profiled(device(count=2, scenario=SCENARIO), tmp_path, 8)["exposed-communication"]
    assert found["evidence"][0].startswith("rank ") and "profiled step" in found["evidence"][0]
    assert any("the least of 2 ranks" in it for it in found["evidence"])


def test_an_exchange_that_hides_behind_backward_costs_nothing(
    device: Callable[..., SimulatedDevice], tmp_path: Path
) -> None:
    """The buckets are exchanged while backward goes on, but for the last one, which is a small part of the step."""
    assert "exposed-communication" not in profiled(device(count=2, scenario=SCENARIO), tmp_path, 32_768)
