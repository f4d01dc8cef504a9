"""CUDA graphs: captured without being executed, replayed for one launch; and training steps inside of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STEPS = """
import json, sys, time
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
inputs, labels = torch.zeros(32, 64, device="cuda"), torch.zeros(32, dtype=torch.long, device="cuda")
batches = [(torch.randn(32, 64), torch.randint(10, (32,))) for _ in range(20)]

def step():
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss

def fill(batch):
    inputs.copy_(batch[0])
    labels.copy_(batch[1])

stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for batch in batches[:3]:
        fill(batch)
        step()
torch.cuda.current_stream().wait_stream(stream)

replay = step
if sys.argv[1] == "graph":
    graph = torch.cuda.CUDAGraph()
    before = [it.clone() for it in model.parameters()]
    with torch.cuda.graph(graph):
        captured = step()
    assert all(torch.equal(*it) for it in zip(before, model.parameters())), "nothing runs within a capture"

    def replay():
        graph.replay()
        return captured

losses, seconds = [], []
for batch in batches[3:]:
    fill(batch)
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    loss = replay()
    seconds.append(time.perf_counter_ns() - began)
    losses.append(loss.item())
print(json.dumps({"losses": losses, "nanoseconds": seconds}))
"""


def test_replays_compute_what_the_steps_do_for_one_launch(device: Any, run: Any) -> None:
    eager, graph = (json.loads(run(device(), STEPS, it)) for it in ("eager", "graph"))
    assert graph["losses"] == eager["losses"]
    assert set(graph["nanoseconds"]) == {10_000}
    assert min(eager["nanoseconds"]) > 20 * 10_000


FORBIDDEN = """
import torch

values, event = torch.ones(3, device="cuda"), torch.cuda.Event(enable_timing=True)
for what in (torch.cuda.synchronize, values.sum, lambda: values.sum().item(), torch.cuda.get_rng_state):
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            assert torch.cuda.is_current_stream_capturing()
            what()
        print("done")
    except RuntimeError as error:
        print("refused")
"""


def test_a_capture_allows_no_waiting(device: Any, run: Any) -> None:
    assert run(device(), FORBIDDEN).split() == ["refused", "done", "refused", "refused"]
