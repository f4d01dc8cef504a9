"""`hotlap memory` on a simulated device: storages of the device, and what its allocator counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated.environment import SimulatedDevice

SCRIPT = """\
import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
outputs = []
for step in range(1000):
    optimizer.zero_grad()
    output = model(torch.randn(16, 64).cuda())
    output.square().mean().backward()
    optimizer.step()
    outputs.append(output)  # grows
"""
PARAMETER_BYTES = 4 * (65 * 256 + 257)


@pytest.mark.slow
def test_storages_of_the_device_are_counted_next_to_its_allocator(
    tmp_path: Path, device: Callable[..., SimulatedDevice]
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "memory", "--json", "train.py"],
        cwd=tmp_path,
        env={**os.environ, **device("a100").variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    study = json.loads(done.stdout)
    account, allocator = study["memory"], study["memory"]["allocator"]
    assert account["device"] == "cuda" and account["peak"]["parameters"] == PARAMETER_BYTES
    assert account["growth_bytes_per_step"] == 4 * 16
    (growing,) = account["growing"]
    assert growing["name"] == "outputs" and growing["site"]["line"] == 1 + SCRIPT[: SCRIPT.index("# grows")].count("\n")
    assert allocator["limit_bytes"] > 30 * 2**30 and allocator["retries"] == 0
    counted = sum(account["peak"].values())
    assert counted <= allocator["peak_allocated_bytes"] <= allocator["peak_reserved_bytes"]
    # The simulation keeps no history: there is still an account, and it says so.
    assert allocator["snapshot_path"] == "" and any("keeps no history" in it for it in study["warnings"])
