"""Simulated time: the same on every machine, with queues, copies and waits as a device has them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STEPS = """
import json, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
inputs, labels = torch.randn(512, 256), torch.randint(10, (512,))
seconds, losses = [], []
for _ in range(5):
    began = time.perf_counter_ns()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(inputs.cuda()), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    seconds.append(time.perf_counter_ns() - began)
print(json.dumps({"nanoseconds": seconds, "losses": losses}))
"""


def test_a_slower_device_takes_longer(device: Any, run: Any) -> None:
    a100, t4 = (json.loads(run(device(it), STEPS))["nanoseconds"][-1] for it in ("a100", "t4"))
    assert t4 > 1.5 * a100


READS = """
import torch

torch.cuda.set_sync_debug_mode("error")
values = torch.ones(3, device="cuda")
values += 1
for read in (lambda: values.sum().item(), lambda: values.nonzero(), lambda: values[values > 1], lambda: values.cpu()):
    try:
        read()
    except RuntimeError as error:
        print("synchronizing" in str(error))
"""


def test_reads_are_reported_in_torchs_debug_mode(device: Any, run: Any) -> None:
    assert run(device(), READS).split() == ["True"] * 4


SLEEP = """
import time
import torch

torch.cuda.init()
began, really = time.perf_counter(), time.clock_gettime(time.CLOCK_MONOTONIC)
time.sleep(3600)
print(time.perf_counter() - began, time.clock_gettime(time.CLOCK_MONOTONIC) - really < 60)
"""


def test_sleeping_takes_simulated_time_alone(device: Any, run: Any) -> None:
    slept, was_quick = run(device(), SLEEP).split()
    assert abs(float(slept) - 3600) < 1e-6 and was_quick == "True"
