"""One rank of a model under each way of sharing it: the gradients that hotlap saved of its first step.

Arguments: the rank, the number of ranks, a file for their rendezvous, a folder for the gradients.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

from hotlap.records import Assignment, CaptureGradients, ComputeInFloat64, Instrument, NudgeWeights, Workload
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.instruments.api import Place, install
from hotlap.runtime.interception import Interception
from hotlap.runtime.invariants import InvariantsRecorder

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")
ASSIGNMENT = Assignment(workload=WORKLOAD, instruments=(CaptureGradients(),))


class Net(nn.Module):
    """No size of it can be divided by two."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 5), nn.Tanh())
        self.head = nn.Linear(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x))
        return found


def _ddp(net: Net) -> nn.Module:
    return DistributedDataParallel(net)


def _compiled_ddp(net: Net) -> nn.Module:
    compiled: Any = torch.compile(DistributedDataParallel(net), backend="eager")
    return compiled  # type: ignore[no-any-return]


def _fsdp2(net: Net) -> nn.Module:
    fully_shard(net.body)
    fully_shard(net)
    return net


def _fsdp1(net: Net) -> nn.Module:
    net.body = FullyShardedDataParallel(net.body, use_orig_params=True, device_id=torch.device("cpu"))  # type: ignore[assignment]
    return FullyShardedDataParallel(net, use_orig_params=True, device_id=torch.device("cpu"))


def _flat_fsdp1(net: Net) -> nn.Module:
    return FullyShardedDataParallel(net, use_orig_params=False, device_id=torch.device("cpu"))


WAYS = {"ddp": _ddp, "compiled": _compiled_ddp, "fsdp2": _fsdp2, "fsdp1": _fsdp1, "flat": _flat_fsdp1}
WIDE = ("ddp", "fsdp2", "fsdp1")


def first_step(name: str, rank: int, folder: Path, *instruments: Instrument) -> str:
    """The file of gradients."""
    interception = Interception(Hooks(torch=torch))
    clock = StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    recorder = InvariantsRecorder(interception, ASSIGNMENT)
    recorder.directory = folder
    folder.mkdir(exist_ok=True)
    install(Place(interception, clock, lambda **found: None, folder), instruments)
    interception.install()
    try:
        torch.manual_seed(0)
        model = WAYS[name](Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(1 + rank)
        model(torch.randn(4, 6)).square().mean().backward()
        optimizer.step()
    finally:
        interception.suspend()
    return recorder.gradients_path


def main() -> None:
    rank, size, rendezvous, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    found = {name: first_step(name, rank, folder / name) for name in WAYS}
    for name in WIDE:
        found[f"{name} wide"] = first_step(name, rank, folder / f"{name}-wide", ComputeInFloat64(), NudgeWeights())
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
