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
for _ in range(8):
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


def test_steps_take_the_same_time_whenever_they_run(device: Any, run: Any) -> None:
    first, second = (json.loads(run(device(), STEPS)) for _ in range(2))
    assert first == second
    assert len(set(first["nanoseconds"][4:])) == 1, "the first ones allocate memory"
    assert first["losses"][0] > first["losses"][-1]


def test_a_slower_device_takes_longer(device: Any, run: Any) -> None:
    a100, t4 = (json.loads(run(device(it), STEPS))["nanoseconds"][-1] for it in ("a100", "t4"))
    assert t4 > 1.5 * a100


QUEUE = """
import json, time
import torch

a = torch.randn(8192, 8192, device="cuda")
torch.cuda.synchronize()
begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
began = time.perf_counter()
begin.record()
for _ in range(20):
    b = a @ a
end.record()
launched = time.perf_counter() - began
torch.cuda.synchronize()
print(json.dumps({"launched": launched, "waited": time.perf_counter() - began, "events": begin.elapsed_time(end) / 1e3,
                  "flops": 20 * 2 * 8192**3}))
"""


def test_the_host_runs_ahead_and_waits(device: Any, run: Any) -> None:
    found = json.loads(run(device("h100"), QUEUE))
    assert found["launched"] < 0.01 * found["waited"]
    assert abs(found["waited"] - found["events"]) < 1e-3
    assert 0.99 < found["flops"] / found["events"] / 5.0e13 < 1.01, "float32, as the profile has it"


def test_a_full_queue_keeps_the_host_waiting(device: Any, run: Any) -> None:
    """With room for five products of twenty, fifteen are done when the last one is launched."""
    found = json.loads(run(device("h100", scenario="[device.rates]\nqueue_depth = 5\n"), QUEUE))
    assert 0.74 < found["launched"] / found["waited"] < 0.76


COPIES = """
import json, time
import torch

def seconds(work):
    torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    launched = time.perf_counter() - began
    torch.cuda.synchronize()
    return launched, time.perf_counter() - began

pageable = torch.zeros(64 << 20, dtype=torch.uint8)
pinned = pageable.pin_memory()
kept = []
found = {
    "pageable": seconds(lambda: kept.append(pageable.cuda(non_blocking=True))),
    "pinned": seconds(lambda: kept.append(pinned.cuda())),
    "ahead": seconds(lambda: kept.append(pinned.cuda(non_blocking=True))),
}
print(json.dumps({**found, "is_pinned": [pageable.is_pinned(), pinned.is_pinned()]}))
"""


def test_copies_wait_unless_they_are_pinned_and_non_blocking(device: Any, run: Any) -> None:
    found = json.loads(run(device("h100"), COPIES))
    assert found["is_pinned"] == [False, True]
    assert found["ahead"][0] < 0.5 * found["ahead"][1], "the host goes on"
    for kind, rate in (("pageable", 9.0e9), ("pinned", 5.2e10)):
        launched, whole = found[kind]
        assert launched > 0.95 * whole, "the host does not advance"
        assert whole >= (64 << 20) / rate


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


HOLLOW = """
import json, sys, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(int(sys.argv[1]), 1024), nn.GELU(), nn.Linear(1024, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
inputs, labels = torch.randn(512, int(sys.argv[1])), torch.randint(10, (512,))
seconds = []
for _ in range(4):
    began = time.perf_counter_ns()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(inputs.cuda())
        loss = nn.functional.cross_entropy(output, labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seconds.append(time.perf_counter_ns() - began)
    form = [list(output.shape), str(output.dtype), list(model[0].weight.grad.stride())]
print(json.dumps({"nanoseconds": seconds, "form": form, "loss": loss.item()}))
"""


def test_large_work_that_is_not_computed_takes_its_time_all_the_same(device: Any, run: Any) -> None:
    whole, hollow = (
        json.loads(run(device("t4", scenario=f"[device.rates]\nhollow_bytes = {it}\n"), HOLLOW, "1024"))
        for it in (0, 100_000)
    )
    assert hollow["nanoseconds"] == whole["nanoseconds"]
    assert hollow["form"] == whole["form"]
    assert hollow["loss"] == pytest.approx(2.30, abs=0.01) != whole["loss"], "of zeros"


SOFTMAX = """
import torch

def gradient(values, device):
    given = values.to(device).requires_grad_()
    with torch.autocast(device, dtype=torch.float16, enabled=device == "cuda"):
        for function in (torch.softmax, torch.log_softmax):
            result = function(given, 1)
            assert result.dtype == torch.float32
            result[:, 1].sum().backward()
    return given.grad

values = torch.randn(32, 10).half()
found, expected = gradient(values, "cuda"), gradient(values.float(), "cpu")
assert found.dtype == torch.float16
print((found.cpu() - expected).abs().max().item() < 1e-3)
"""


def test_softmax_of_half_precision_gives_float32(device: Any, run: Any) -> None:
    assert run(device(), SOFTMAX).split() == ["True"]
