"""`hotlap run --watch` on a simulated device: what it reads of the device without waiting for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated.environment import SimulatedDevice

from hotlap.study import load_study

TRAINING = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
inputs = torch.randn(64, 256, device="cuda")
torch.cuda.set_sync_debug_mode("error")
for _ in range(300):
    optimizer.zero_grad()
    scaler.scale(model(inputs).square().mean()).backward()
    scaler.step(optimizer)
    scaler.update()
"""
WEIGHTS_BYTES = 4 * 256 * 257


@pytest.mark.slow
def test_loss_scale_and_memory_are_read_without_waiting(device: Callable[..., SimulatedDevice], tmp_path: Path) -> None:
    """A step is fifty times as long as on the device, so that a few hundred take seconds of its time."""
    script = TRAINING.replace("scaler.step(optimizer)", "torch.cuda.set_sync_debug_mode(0); scaler.step(optimizer)")
    script = script.replace("scaler.update()", 'scaler.update(); torch.cuda.set_sync_debug_mode("error")')
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "hotlap", "run", "--watch", "train.py"],
        env={**os.environ, **device("t4", scenario="[device]\nslower = 50\n").variables},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    watch = load_study(tmp_path / ".hotlap" / "watch").watch
    assert watch is not None and watch.steps == 300 and len(watch.series.steps) > 1
    assert any(it and it > WEIGHTS_BYTES for it in watch.series.device_bytes)
    assert any(it is not None and it < 1.0 for it in watch.series.loss), "before scaling"
    assert set(watch.series.loss_scale) <= {1024.0, None} and 1024.0 in watch.series.loss_scale
