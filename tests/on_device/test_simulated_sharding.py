"""The sharding levers on two simulated devices whose collectives are NCCL's: the same training, less memory held, and
checkpoints of the first rank alone; and the rates of collectives between devices."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from simulated.environment import SimulatedDevice

from hotlap.records import CollectiveRates

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys
import torch
from torch import distributed, nn
from torch.distributed import fsdp
from torch.nn.parallel import DistributedDataParallel

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
distributed.init_process_group("nccl")
STEPS, WIDTH = 6, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + self.outer(torch.tanh(self.inner(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(lever, values, shards):
    interception = Interception(Hooks(torch=torch))
    interception.install()
    if lever:
        find(lever).install(interception.hooks, make_setting(lever, **values))
    torch.manual_seed(0)
    net = Net().cuda()
    if shards:
        for block in net.blocks:
            fsdp.fully_shard(block)
        fsdp.fully_shard(net)
        model = net
    else:
        model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, saved = [], {}
    torch.manual_seed(1 + rank)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(16, WIDTH).cuda()).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        if step == 3 and rank == 0 and not shards:  # on the first rank alone
            state = optimizer.state_dict()["state"]
            weights = model.module.state_dict()
            saved = {"weights": sum(it.numel() for it in weights.values()),
                     "moments": sum(it.numel() for kept in state.values() for it in kept.values() if it.dim()),
                     "sum": sum(float(it.double().sum()) for it in weights.values())}
    held = sum((it.to_local() if hasattr(it, "to_local") else it).numel()
               for kept in optimizer.state.values() for it in kept.values() if it.dim())
    weights = [float(it.to_local().double().sum()) for it in net.parameters()] if shards else []
    interception.suspend()
    return {"losses": losses, "held": held, "saved": saved, "weights": weights, "notes": interception.hooks.notes}


found = {name: train(*job) for name, job in json.loads(sys.argv[1]).items()}
torch.cuda.synchronize()
distributed.barrier()
gathered = [None, None]
distributed.all_gather_object(gathered, found)
if rank == 0:
    print("FOUND" + json.dumps(gathered))
distributed.destroy_process_group()
"""
JOBS: dict[str, tuple[str, dict[str, Any], bool]] = {
    "plain": ("", {}, False),
    "zero": ("sharded-optimizer", {}, False),
    "sharded": ("fully-sharded", {"reshard_after_forward": True}, False),
    "kept": ("fully-sharded", {"reshard_after_forward": False}, False),
    "own": ("", {}, True),
    "own kept": ("reshard-after-forward", {"reshard": False}, True),
    "own ahead": ("sharded-prefetch", {"ahead": "forward"}, True),
    "own whole": ("replicated-weights", {}, True),
    "own half": ("sharded-precision", {"param_dtype": "bfloat16"}, True),
}


@pytest.fixture
def ranks(device: Callable[..., SimulatedDevice], run: Callable[..., str]) -> list[dict[str, Any]]:
    printed = run(device(count=2), SCRIPT, json.dumps(JOBS), ranks=2)
    line = next(it for it in printed.splitlines() if it.startswith("FOUND"))
    found: list[dict[str, Any]] = json.loads(line.removeprefix("FOUND"))
    return found


def test_training_is_the_same_with_less_held_on_each_device(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        plain = found["plain"]
        assert not any(found[it]["notes"] for it in JOBS)
        assert found["zero"]["losses"] == plain["losses"], "to the last bit"
        for name in ("sharded", "kept", "own", "own whole"):
            assert found[name]["losses"] == pytest.approx(plain["losses"], rel=1e-4)
        assert found["own kept"]["losses"] == found["own ahead"]["losses"] == found["own"]["losses"]
        assert found["own kept"]["weights"] == found["own"]["weights"]
        assert found["own half"]["losses"] != found["own"]["losses"]
        assert found["own half"]["losses"][0] == pytest.approx(plain["losses"][0], rel=0.02)
        assert found["own whole"]["held"] == plain["held"]
        for name in ("zero", "sharded", "kept", "own", "own half"):
            assert found[name]["held"] < 0.6 * plain["held"]
    for name in ("zero", "sharded", "kept"):
        assert sum(it[name]["held"] for it in ranks) == ranks[0]["plain"]["held"]


def test_the_first_rank_alone_saves_whole_checkpoints(ranks: list[dict[str, Any]]) -> None:
    plain, *others = (ranks[0][it]["saved"] for it in ("plain", "zero", "sharded", "kept"))
    for it in others:
        assert (it["weights"], it["moments"]) == (plain["weights"], plain["moments"])
        assert it["sum"] == pytest.approx(plain["sum"], rel=1e-4)


def test_collectives_between_devices_are_measured(device: Callable[..., SimulatedDevice]) -> None:
    module = ("hotlap.machine.collectives", "--device", "cuda", "--seconds", "2")
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", *module],
        env={**os.environ, **device(count=2).variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = msgspec.json.decode(done.stdout[done.stdout.find("{") :], type=CollectiveRates)
    assert {it.name for it in found.rates} == {"all-reduce", "all-gather", "reduce-scatter"}
    assert all(it.backend == "nccl" and it.processes == 2 and it.bytes_per_second > 0 for it in found.rates)
