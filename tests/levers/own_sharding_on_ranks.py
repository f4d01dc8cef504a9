"""One rank of scripts that share their model by FSDP themselves: losses, whole weights, and the facts, for each job.

Arguments: the rank, the number of ranks, a file for their rendezvous. Jobs on standard input.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.distributed.fsdp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import BackwardPrefetch, FSDPModule, FullyShardedDataParallel
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor

from hotlap.levers.api import find
from hotlap.records import Setting, ShardedFacts
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.sharded_facts import sharded_facts


class Job(msgspec.Struct):
    """Some steps of a model of FSDP1 or FSDP2.

    ``by_policy``: FSDP1 wraps the parts by itself; ``by_mesh``: the script passes its own mesh; ``clips``: the norm of
    the gradients is among the losses. ``loads`` and ``saves`` are folders of checkpoints, before and after training.
    """

    interface: str
    setting: Setting | None = None
    reshards: bool = True
    by_policy: bool = False
    by_mesh: bool = False
    clips: bool = False
    steps: int = 3
    loads: str = ""
    saves: str = ""


class Result(msgspec.Struct):
    losses: list[float]
    weights: list[float]
    facts: tuple[ShardedFacts, ...]
    notes: list[str]
    ahead: list[bool]
    held: int
    formats: list[str]


def shared(job: Job) -> nn.Module:
    net = nn.Sequential(*(nn.Sequential(nn.Linear(9, 9), nn.Tanh()) for _ in range(3)), nn.Linear(9, 1))
    if job.interface == "fsdp2":
        mesh: dict[str, Any] = {"mesh": init_device_mesh("cpu", (dist.get_world_size(),))} if job.by_mesh else {}
        for block in list(net)[:3]:
            torch.distributed.fsdp.fully_shard(block, reshard_after_forward=job.reshards, **mesh)
        torch.distributed.fsdp.fully_shard(net, **mesh)
        return net
    given: dict[str, Any] = {"use_orig_params": True, "device_id": torch.device("cpu")}
    if job.by_policy:
        return FullyShardedDataParallel(net, auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), **given)
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
    if job.loads:
        _checkpoint(model, optimizer, load=job.loads)
    torch.manual_seed(1 + rank)
    losses = []
    formats = set()
    model.register_forward_hook(lambda module, args, output: formats.add(str(output.dtype)))
    for _ in range(job.steps):
        optimizer.zero_grad()
        output = model(torch.randn(4, 9))
        formats.add(f"given {output.dtype}")
        loss = output.square().mean()
        loss.backward()
        losses.append(loss.item())
        if job.clips:
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.01).full_tensor().item())  # type: ignore[attr-defined]
        optimizer.step()
    if job.saves:
        _checkpoint(model, optimizer, save=job.saves)
    facts = sharded_facts(torch, interception.roots.all())
    interception.suspend()
    held = sum(it.to_local().numel() if isinstance(it, DTensor) else it.numel() for it in model.parameters())
    formats |= {str(it.dtype) for it in model.parameters()}
    return Result(losses, _whole(model), facts, interception.hooks.notes, _ahead(model), held, sorted(formats))


def _checkpoint(model: nn.Module, optimizer: Any, *, load: str = "", save: str = "") -> None:
    """As torch's documentation of distributed checkpoints does it."""
    weights, state = get_state_dict(model, optimizer)
    kept: dict[str, Any] = {"model": weights, "optimizer": state}
    if save:
        dcp.save(kept, checkpoint_id=save)
        return
    dcp.load(kept, checkpoint_id=load)
    set_state_dict(model, optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"])


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
