"""One rank of a small training script, once for each job on standard input; losses and weights on standard output.

Arguments: the rank, the number of ranks, a file for their rendezvous. Levers are installed onto a real interception.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hotlap.levers.api import find
from hotlap.records import DataParallelFacts, Setting
from hotlap.runtime.data_parallel import DataParallelWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception


class Job(msgspec.Struct):
    """A training of ``updates`` steps with so many backward passes each; an optimizer, or AdamW."""

    setting: Setting | None = None
    updates: tuple[int, ...] = (1,) * 6
    optimizer: str = "AdamW"
    arguments: dict[str, Any] = {}
    clips: bool = False
    unused: bool = False


class Result(msgspec.Struct):
    losses: list[float]
    weights: dict[str, list[float]]
    gradients: list[float]
    notes: list[str]
    facts: tuple[DataParallelFacts, ...]
    state: dict[str, list[float]]


class Net(nn.Module):
    def __init__(self, unused: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 900), nn.Tanh(), nn.Linear(900, 700), nn.Tanh())
        self.head = nn.Linear(700, 2)
        self.spare = nn.Linear(3, 3) if unused else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x))
        return found


def train(job: Job, rank: int) -> Result:
    """The losses of every backward pass, and the weights at the end, as a checkpoint holds them."""
    interception = Interception(Hooks(torch=torch))
    interception.install()
    watch = DataParallelWatch(interception.hooks)
    interception.hooks.before_backward.append(lambda loss: (watch.backward_begins(), loss)[1])
    if job.setting is not None:
        find(job.setting.lever).install(interception.hooks, job.setting)
    torch.manual_seed(0)
    model = DistributedDataParallel(Net(job.unused), **job.arguments)
    optimizer = getattr(torch.optim, job.optimizer)(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    losses: list[float] = []
    gradients: list[float] = []
    for backwards in job.updates:
        optimizer.zero_grad()
        for _ in range(backwards):
            x = torch.randn(4, 32)
            loss = nn.functional.mse_loss(model(x), x[:, :2]) / backwards
            loss.backward()
            losses.append(loss.item())
        if job.clips:
            gradients.append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
    saved = model.state_dict()
    Net(job.unused).load_state_dict({name.removeprefix("module."): value for name, value in saved.items()})
    weights = {name: value.flatten()[:50].tolist() for name, value in saved.items()}
    result = Result(losses, weights, gradients, interception.hooks.notes, watch.facts(), _state(optimizer))
    interception.suspend()
    return result


def _state(optimizer: Any) -> dict[str, list[float]]:
    """The optimizer's state, as its checkpoint holds it."""
    kept = optimizer.state_dict()["state"]
    return {
        f"{number}.{name}": value.flatten()[:5].tolist() for number, it in kept.items() for name, value in it.items()
    }


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
