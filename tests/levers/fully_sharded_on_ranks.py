"""One rank of scripts that wrap their model in DDP: each job with and without the lever that shards it.

Arguments: the rank, the number of ranks, a file for their rendezvous, a folder. Jobs on standard input.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

STEPS = 6


class Job(msgspec.Struct):
    """A training of six steps; ``loads`` names the job whose checkpoint after three steps it continues."""

    shards: bool | None = None
    model: str = "net"
    clips: bool = False
    accumulates: bool = False
    evaluates_on: tuple[int, ...] = ()
    early_optimizer: bool = False
    loads: str = ""
    saves: bool = True


class Result(msgspec.Struct):
    losses: list[float]
    norms: list[float]
    evaluations: list[float]
    weights: list[float]
    notes: list[str]
    held: int
    whole: int
    kinds: list[str]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width, 2 * width)
        self.outer = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.outer(torch.tanh(self.inner(x)))  # type: ignore[no-any-return]


class Net(nn.Module):
    """Three blocks between two weights that are tied, and a batch norm."""

    def __init__(self, width: int = 15, shared: bool = False) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, width)
        self.norm = nn.BatchNorm1d(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        if shared:
            self.blocks[2].inner.weight = self.blocks[0].inner.weight  # type: ignore[union-attr, assignment]
        self.head = nn.Linear(width, 7, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.norm(self.embed(x))
        for block in self.blocks:
            found = block(found)
        return self.head(found)  # type: ignore[no-any-return]


def train(name: str, job: Job, rank: int, folder: Path) -> Result:
    interception = Interception(Hooks(torch=torch))
    interception.install()
    if job.shards is not None:
        setting = make_setting("fully-sharded", reshard_after_forward=job.shards)
        find(setting.lever).install(interception.hooks, setting)
    torch.manual_seed(rank)
    net = Net(shared=job.model == "shared")
    early = torch.optim.AdamW(net.parameters(), lr=0.01) if job.early_optimizer else None
    model = DistributedDataParallel(net)
    optimizer = early or torch.optim.AdamW(model.parameters(), lr=0.01)
    losses, norms, evaluations = [], [], []
    first = 0
    if job.loads:
        first = STEPS // 2
        saved = torch.load(folder / f"{job.loads}.pt", weights_only=True)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(first, STEPS):
        model.train()
        optimizer.zero_grad()
        torch.manual_seed(100 + rank + 10 * step)
        for part in range(2 if job.accumulates else 1):
            x = torch.randint(0, 7, (12,))
            if job.accumulates and part == 0:
                with model.no_sync():
                    loss = _loss(model, x)
                    loss.backward()
            else:
                loss = _loss(model, x)
                loss.backward()
            losses.append(loss.item())
        if job.clips:
            norms.append(float(f"{nn.utils.clip_grad_norm_(model.parameters(), 0.1):.6f}"))
        optimizer.step()
        if step in (0, 3) and rank in job.evaluates_on:
            evaluations += evaluate(model, x, alone=len(job.evaluates_on) == 1)
        if step == STEPS // 2 - 1 and job.saves and rank == 0:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"{name}.pt")
    result = Result(
        losses=losses,
        norms=norms,
        evaluations=evaluations,
        weights=[number for it in model.state_dict().values() for number in it.flatten().tolist()],
        notes=interception.hooks.notes,
        held=sum(_local(it) for kept in optimizer.state.values() for it in kept.values() if it.dim()),
        whole=sum(it.numel() for kept in optimizer.state.values() for it in kept.values() if it.dim()),
        kinds=[str(isinstance(model, DistributedDataParallel)), type(next(model.parameters())).__name__],
    )
    interception.suspend()
    return result


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(x), (x + 1) % 7)


def evaluate(model: Any, x: torch.Tensor, *, alone: bool) -> list[float]:
    """By the model within and by one of its blocks, as one rank alone may; else by the wrapper too."""
    model.eval()
    with torch.no_grad():
        found = [_loss(model.module, x).item(), model.module.blocks[1](torch.ones(2, 15)).sum().item()]
        return found if alone else [*found, _loss(model, x).item()]


def _local(tensor: Any) -> int:
    return int((tensor.to_local() if hasattr(tensor, "to_local") else tensor).numel())


def main() -> None:
    rank, size, rendezvous, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Job])
    results = {name: train(name, it, rank, folder) for name, it in jobs.items()}
    dist.destroy_process_group()
    sys.stdout.buffer.write(msgspec.json.encode(results))


if __name__ == "__main__":
    main()
