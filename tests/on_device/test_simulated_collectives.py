"""Two devices that train one model: NCCL's collectives, their numbers and their time."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.slow

COLLECTIVES = """
import os
import torch
from torch import distributed

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
mine = torch.full((4,), float(rank + 1), device="cuda")

summed = mine.clone()
distributed.all_reduce(summed)
mean = mine.clone()
distributed.all_reduce(mean, distributed.ReduceOp.AVG)
gathered = torch.empty(8, device="cuda")
distributed.all_gather_into_tensor(gathered, mine)
scattered = torch.empty(2, device="cuda")
distributed.reduce_scatter_tensor(scattered, mine)
sent = mine.clone()
distributed.broadcast(sent, 1)
distributed.barrier()
if rank == 0:
    print([it.tolist() for it in (summed, mean, gathered, scattered, sent)])
distributed.destroy_process_group()
"""


def test_collectives_compute_what_they_should(device: Any, run: Any) -> None:
    found = json.loads(run(device(count=2), COLLECTIVES, ranks=2))
    assert found == [[3.0] * 4, [1.5] * 4, [1.0] * 4 + [2.0] * 4, [3.0] * 2, [2.0] * 4]


HANGING = """
import os, signal
from datetime import timedelta
import torch
from torch import distributed

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl", timeout=timedelta(seconds=5))
mine = torch.ones(4, device="cuda")
distributed.all_reduce(mine)
print("the first came through", flush=True)
if rank == 1:
    signal.pause()
distributed.all_reduce(mine)
print("the second came through", flush=True)
"""


def test_the_watchdog_aborts_a_rank_whose_peer_hangs(device: Any, run: Any) -> None:
    with pytest.raises(AssertionError) as failed:
        run(device(count=2), HANGING, ranks=2)
    assert "Watchdog caught collective operation timeout" in str(failed.value)
    assert "Signal 6 (SIGABRT)" in str(failed.value)


TRAINING = """
import json, os, sys, time
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 10)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
inputs, labels = torch.randn(64, 256, device="cuda"), torch.randint(10, (64,), device="cuda")
seconds = []
for _ in range(6):
    began = time.perf_counter_ns()
    if rank == 1:
        time.sleep(float(sys.argv[1]))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    torch.cuda.synchronize()
    seconds.append(time.perf_counter_ns() - began)
weights = sum(it.double().sum().item() for it in model.parameters())
both = [None, None]
distributed.all_gather_object(both, (weights, seconds[-1]))
if rank == 0:
    print(json.dumps(both))
distributed.destroy_process_group()
"""


def test_ranks_hold_the_same_weights_and_wait_for_each_other(device: Any, run: Any) -> None:
    even, uneven = (json.loads(run(device(count=2), TRAINING, it, ranks=2)) for it in ("0", "0.05"))
    for both in (even, uneven):
        assert both[0][0] == both[1][0]
        assert both[0][1] == pytest.approx(both[1][1], rel=0.05)
    assert even[0][0] == uneven[0][0]
    assert uneven[0][1] == pytest.approx(even[0][1] + 50_000_000, rel=0.05)


MEASURING = """
import sys
from hotlap.machine.collectives import main

sys.exit(main(["--device", "cuda", "--seconds", "0.5"]))
"""


def test_their_latency_and_bandwidth_are_measured(device: Any, run: Any) -> None:
    """`hotlap doctor --processes 2` on NCCL. The simulated link moves 150 GB/s after 20 microseconds."""
    found = json.loads(run(device(count=2), MEASURING, ranks=2))
    rates = {it["name"]: it for it in found["rates"]}
    assert set(rates) == {"all-reduce", "all-gather", "reduce-scatter"}
    assert all(it["backend"] == "nccl" and it["processes"] == 2 for it in rates.values())
    assert 0 <= found["hidden_share"] <= 1
    largest, seconds = rates["all-reduce"]["seconds_by_bytes"][-1]
    assert seconds > 20e-6 + largest / 150e9
