"""One rank of scripts that keep an optimizer's state: each job with and without the lever that shares it.

Arguments: the rank, the number of ranks, a file for their rendezvous, a folder. Jobs on standard input.
"""

from __future__ import annotations

import sys
import time
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
    """A training of six steps; ``loads`` names the job whose checkpoint after three steps it continues.

    A ``late`` first rank saves once more when the other has done its work; as the last job, when it has left its group.
    """

    shared: bool
    optimizer: str = "AdamW"
    arguments: dict[str, Any] = {}
    closure: bool = False
    scaler: bool = False
    groups: bool = False
    grows: bool = False
    beside: bool = False
    loads: str = ""
    saves_on: tuple[int, ...] = (0,)
    late: bool = False


class Result(msgspec.Struct):
    losses: list[float]
    weights: list[float]
    notes: list[str]
    held: int
    keys: list[int]
    equal_groups: bool


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 90), nn.Tanh(), nn.Linear(90, 70), nn.Tanh())
        self.head = nn.Linear(70, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.body(x))
        return found


class Training:
    """What a script does, step by step."""

    def __init__(self, name: str, job: Job, rank: int, folder: Path) -> None:
        self.name, self.job, self.rank, self.folder = name, job, rank, folder
        torch.manual_seed(0)
        net = Net()
        self.model = DistributedDataParallel(net)
        self.beside = nn.Linear(2, 2, bias=False) if job.beside else None
        groups: list[dict[str, Any]] = [{"params": list(self.model.parameters())}]
        if job.groups:
            groups = [
                {"params": [it for it in self.model.parameters() if it.dim() > 1], "weight_decay": 0.1},
                {"params": [it for it in self.model.parameters() if it.dim() < 2], "weight_decay": 0.0},
            ]
        if job.grows:
            groups = [{"params": list(net.body.parameters())}]
        if self.beside is not None:
            groups.append({"params": list(self.beside.parameters())})
        self.optimizer = getattr(torch.optim, job.optimizer)(groups, **({"lr": 0.01} | job.arguments))
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=8.0, enabled=job.scaler)
        self.losses: list[float] = []

    def train(self) -> None:
        first = 0
        if self.job.loads:
            first = STEPS // 2
            saved = torch.load(self.folder / f"{self.job.loads}.pt", weights_only=True)
            self.model.module.load_state_dict(saved["model"])
            self.optimizer.load_state_dict(saved["optimizer"])
            self.scheduler.load_state_dict(saved["scheduler"])
        for step in range(first, STEPS):
            torch.manual_seed(100 + self.rank + 10 * step)
            self.step()
            if step == STEPS // 2 - 1:
                self.save(self.name)
            if step == 1 and self.job.grows:
                self.optimizer.add_param_group({"params": list(self.model.module.head.parameters())})

    def step(self) -> None:
        x = torch.randn(4, 32)

        def loss_of() -> torch.Tensor:
            self.optimizer.zero_grad()
            found = self.model(x)
            if self.beside is not None:
                found = self.beside(found)
            loss = nn.functional.mse_loss(found, x[:, :2])
            self.scaler.scale(loss).backward()
            return loss

        if self.job.closure:
            loss = self.optimizer.step(loss_of)
        else:
            loss = loss_of()
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.scheduler.step()
        self.losses.append(loss.item())

    def save(self, name: str) -> None:
        """As most scripts do: on the first rank alone, with no word to the others."""
        if self.rank in self.job.saves_on:
            kept = {
                "model": self.model.module.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }
            torch.save(kept, self.folder / (f"{name}.pt" if self.rank == 0 else f"{name}-{self.rank}.pt"))


def run(name: str, job: Job, rank: int, folder: Path) -> Result:
    interception = Interception(Hooks(torch=torch))
    interception.install()
    if job.shared:
        setting = make_setting("sharded-optimizer")
        find(setting.lever).install(interception.hooks, setting)
    training = Training(name, job, rank, folder)
    before = [sorted(it) for it in training.optimizer.param_groups]
    training.train()
    optimizer = training.optimizer
    if job.late:
        if rank == 0:
            time.sleep(0.5)
        training.save(f"{name}-end")
    held = sum(
        it.numel() for kept in optimizer.state.values() for it in kept.values() if hasattr(it, "dim") and it.dim()
    )
    result = Result(
        losses=training.losses,
        weights=[number for it in training.model.parameters() for number in it.flatten().tolist()],
        notes=interception.hooks.notes,
        held=held,
        keys=list(optimizer.state_dict()["state"]) if not job.shared else [],
        equal_groups=[sorted(it) for it in optimizer.param_groups][: len(before)] == before,
    )
    interception.suspend()
    return result


def main() -> None:
    rank, size, rendezvous, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=dict[str, Job])
    results = {name: run(name, it, rank, folder) for name, it in jobs.items()}
    dist.destroy_process_group()
    sys.stdout.buffer.write(msgspec.json.encode(results))


if __name__ == "__main__":
    main()
