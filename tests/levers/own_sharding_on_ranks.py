"""One rank of scripts that share their model by FSDP themselves: losses, whole weights, and the facts, for each job.

Arguments: the rank, the number of ranks, a file for their rendezvous. Jobs on standard input.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import BackwardPrefetch, FSDPModule, FullyShardedDataParallel, fully_shard

from hotlap.levers.api import find
from hotlap.records import Setting, ShardedFacts
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.sharded_facts import sharded_facts


class Job(msgspec.Struct):
    """Three steps of a model of FSDP1 or FSDP2."""

    interface: str
    setting: Setting | None = None
    reshards: bool = True


class Result(msgspec.Struct):
    losses: list[float]
    weights: list[float]
    facts: tuple[ShardedFacts, ...]
    notes: list[str]
    ahead: list[bool]


def shared(job: Job) -> nn.Module:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(9, 9), nn.Tanh()) for _ in range(3)), nn.Linear(9, 1))
    if job.interface == "fsdp2":
        for block in list(net)[:3]:
            fully_shard(block, reshard_after_forward=job.reshards)
        fully_shard(net)
        return net
    given: dict[str, Any] = {"use_orig_params": True, "device_id": torch.device("cpu")}
    for number in range(3):
        net[number] = FullyShardedDataParallel(net[number], **given)
    return FullyShardedDataParallel(net, backward_prefetch=BackwardPrefetch.BACKWARD_POST, **given)


def train(job: Job, rank: int) -> Result:
    interception = Interception(Hooks(torch=torch))
    interception.install()
    if job.setting is not None:
        find(job.setting.lever).install(interception.hooks, job.setting)
    torch.manual_seed(0)
    model = shared(job)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(1 + rank)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 9)).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
    facts = sharded_facts(torch, interception.roots.all())
    interception.suspend()
    return Result(losses, _whole(model), facts, interception.hooks.notes, _ahead(model))


def _whole(model: nn.Module) -> list[float]:
    if isinstance(model, FullyShardedDataParallel):
        with FullyShardedDataParallel.summon_full_params(model, writeback=False):
            return [number for it in model.parameters() for number in it.flatten().tolist()]
    return [number for it in model.parameters() for number in it.full_tensor().flatten().tolist()]  # type: ignore[attr-defined]


def _ahead(model: nn.Module) -> list[bool]:
    """Which units of FSDP2 gather the next one's weights ahead."""
    units = [it for it in model.modules() if isinstance(it, FSDPModule)]
    return [bool(it._get_fsdp_state()._states_to_forward_prefetch) for it in units]


def main() -> None:
    rank, size, rendezvous = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Job])
    results = {name: train(it, rank) for name, it in jobs.items()}
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.buffer.write(msgspec.json.encode(results))


if __name__ == "__main__":
    main()
