"""``hotlap profile`` from end to end on a simulated device: its ceilings, its trace, its findings with their lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

# A device that is fifty times as slow as it is: then simulated seconds take no more than real ones.
SLOW = """
[device.rates]
bytes_per_second = 2.6e10
float32_flops = 3.0e11
tf32_flops = 2.4e12
float16_flops = 4.8e12
bfloat16_flops = 4.8e12
pinned_bytes_per_second = 5.0e8
pageable_bytes_per_second = 1.4e8
shortest_kernel_nanoseconds = 100000
launch_nanoseconds = 200000
operator_nanoseconds = 150000
"""

READING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
inputs, labels = torch.randn(512, 256).cuda(), torch.randint(10, (512,)).cuda()
total = 0.0
for step in range(100_000):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    total += loss.item()
"""


def profiled(device: Any, folder: Path, source: str) -> dict[str, Any]:
    script = folder / "train.py"
    script.write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "profile", "--json", str(script)],
        env={**os.environ, **device.variables},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_read_in_every_step_and_slow_launches_are_found(device: Any, tmp_path: Path) -> None:
    study = profiled(device("a100", scenario=SLOW), tmp_path, READING)
    by_rule = {it["rule"]: it for it in study["findings"]}
    assert next(iter(by_rule)) == "launch-bound"
    assert by_rule["host-sync"]["site"]["line"] == 15
    assert "room-for-batch" in by_rule
    assert study["baseline"]["facts"]["device"] == "cuda"
    rates = dict(study["machine"]["ceilings"]["matmul_flops_per_second"])
    assert {"cuda:float32", "cuda:bfloat16", "cuda:tf32", "cpu:float32"} <= set(rates)
    assert not any("built without support" in it for it in study["machine"]["warnings"])
