"""`hotlap tune` from the command line to the plan, on each kind of device: what is kept follows from what it can do.

Arithmetic is so much slower than on the device that products in float32 reach the same rate on all of them, and
launches are not, so that small matrices keep it busy. What other formats gain is the device's own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from simulated.environment import SimulatedDevice
from simulated.profile import FOLDER

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 16)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
inputs, labels = torch.randn(16, 256, 256).cuda(), torch.randint(16, (16, 256)).cuda()
for step in range(100_000):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(inputs[step % 16]), labels[step % 16]).backward()
    optimizer.step()
"""
pytestmark = pytest.mark.slow

FLOAT32_FLOPS = 6e10
LEVERS = ("mixed-precision", "matmul-precision")


@dataclass(frozen=True)
class Tuned:
    """The plan that was written, and the study as JSON."""

    plan: dict[str, Any]
    study: dict[str, Any]


@pytest.fixture
def tune(tmp_path: Path, device: Callable[..., SimulatedDevice]) -> Callable[..., Tuned]:
    def tuned(kind: str) -> Tuned:
        rates = tomllib.loads((FOLDER / f"{kind}.toml").read_text(encoding="utf-8"))["rates"]
        factor = rates["float32_flops"] / FLOAT32_FLOPS
        slower = [f"{name} = {rate / factor}" for name, rate in rates.items() if name.endswith("_flops")]
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(TRAINING, encoding="utf-8")
        variables = device(kind, scenario="\n".join(["[device.rates]", *slower])).variables
        done = subprocess.run(
            [sys.executable, "-m", "hotlap", "tune", "--only", ",".join(LEVERS), "--rounds", "8", "train.py"],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        shown = subprocess.run(
            [sys.executable, "-m", "hotlap", "report", "--json"],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=True,
        )
        return Tuned(tomllib.loads((folder / "hotlap.toml").read_text(encoding="utf-8")), json.loads(shown.stdout))

    return tuned


def test_a_device_without_bfloat16_is_given_float16(tune: Callable[..., Tuned]) -> None:
    """A T4 has no TF32 either: `matmul-precision` has nothing to offer. Without noise the gain has none."""
    found = tune("t4")
    assert found.study["machine"]["accelerators"][0]["native_dtypes"] == ["float32", "float16"]
    assert found.study["status"] == "finished"
    assert found.plan["levers"] == {"mixed-precision": {"dtype": "float16"}}
    gain = found.plan["hotlap"]["gain"]
    assert 1 < gain["low"] == pytest.approx(gain["high"], rel=1e-3)


BFLOAT16, TF32 = {"mixed-precision": {"dtype": "bfloat16"}}, {"matmul-precision": {"precision": "high"}}


@pytest.mark.parametrize(
    ("kind", "levers", "most"), [("a100", TF32, 8.0), ("h100", TF32, 6.8), ("laptop", BFLOAT16, 5.0)]
)
def test_a_device_with_both_is_given_what_is_faster_on_it(
    kind: str, levers: dict[str, Any], most: float, tune: Callable[..., Tuned]
) -> None:
    """No plan gains more than products do. TF32 multiplies eight times as fast as float32 on the large devices, so that
    the casts of mixed precision do not pay for matrices of this size; on the laptop's it is only half as fast again."""
    found = tune(kind)
    (device,) = found.study["machine"]["accelerators"]
    assert {"bfloat16", "tf32"} <= set(device["native_dtypes"])
    assert found.study["status"] == "finished"
    assert found.plan["levers"] == levers
    gain = found.plan["hotlap"]["gain"]
    assert 1.2 < gain["low"] <= gain["high"] < most
    assert gain["low"] == pytest.approx(gain["high"], rel=1e-3)
