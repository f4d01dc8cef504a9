"""The profiler's trace of a simulated device, as hotlap reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hotlap.traces import analyse, operators, read_trace

pytestmark = pytest.mark.slow

TRAINING = """
import sys
import torch
from torch import nn


width, batch = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
inputs = torch.randn(batch, width)
activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
with torch.profiler.profile(
    activities=activities, schedule=torch.profiler.schedule(wait=1, warmup=1, active=3), record_shapes=True
) as profile:
    for _ in range(5):
        optimizer.zero_grad()
        model(inputs.cuda()).sum().backward()
        optimizer.step()
        torch.cuda.synchronize()
        profile.step()
profile.export_chrome_trace("trace.json")
"""


def breakdown_of(device: Any, run: Any, folder: Path, width: int, batch: int) -> Any:
    run(device("a100"), TRAINING, str(width), str(batch))
    return analyse(read_trace(str(folder / "trace.json")))


def test_kernels_and_copies_are_on_the_device(device: Any, run: Any, tmp_path: Path) -> None:
    found = breakdown_of(device, run, tmp_path, 1024, 512)
    (one,) = found.devices
    assert not found.unreliable
    assert one.copies and one.copies[0].direction == "HtoD"
    rows = operators(read_trace(str(tmp_path / "trace.json"), with_inputs=True), most=100)
    products = [it for it in rows if it.name in ("aten::addmm", "aten::mm")]
    flops = sum(2 * 512 * 1024 * 1024 * it.calls for it in products)
    assert flops / (sum(it.device_nanoseconds for it in products) * 1e-9) == pytest.approx(1.5e13, rel=0.05)


def test_small_kernels_leave_the_device_waiting_for_launches(device: Any, run: Any, tmp_path: Path) -> None:
    small, large = (breakdown_of(device, run, tmp_path, width, width) for width in (32, 1024))
    busy = [it.devices[0].time.busy_nanoseconds / it.host_nanoseconds for it in (small, large)]
    assert busy[0] < 0.5 < 0.9 < busy[1]


def test_two_traces_show_the_same_times(device: Any, run: Any, tmp_path: Path) -> None:
    """Of operators, kernels and what the device waited for; Python itself takes no time."""
    first, second = (breakdown_of(device, run, tmp_path, 64, 64) for _ in range(2))
    assert first.devices[0].time == second.devices[0].time
    assert first.devices[0].kernels == second.devices[0].kernels
    assert first.host_nanoseconds == pytest.approx(second.host_nanoseconds, rel=1e-3)
