"""Train a GPT or a ResNet of a given size in one process or under a strategy, and print what a step took.

    torchrun --standalone --nproc-per-node 2 train.py --model gpt --size small --strategy fsdp2 --steps 40

The first rank prints the mean step of the slowest rank in seconds, and the largest memory that building and training
the model added to any rank. Without a strategy nothing is exchanged, and steps go on until the process is ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

GPT_SIZES = {"small": (2, 128, 64), "medium": (4, 256, 64), "large": (6, 384, 64)}
"""Layers, width, tokens per sample."""

RESNET_SIZES = {"small": (16, 1), "medium": (32, 2), "large": (64, 3)}
"""Channels of the first stage, blocks per stage."""

WORDS = 512
BATCH = 8
WARM_UP = 5


class Gpt(nn.Module):
    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(width, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.embed(x) + self.place
        for block in self.blocks:
            found = block(found)
        return self.head(found)  # type: ignore[no-any-return]


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(functional.relu(self.norm(self.first(x)))) + self.skip(x))


class Resnet(nn.Module):
    def __init__(self, channels: int, blocks: int) -> None:
        super().__init__()
        widths = [channels * 2**stage for stage in range(3) for _ in range(blocks)]
        strides = [2 if stage and not block else 1 for stage in range(3) for block in range(blocks)]
        before = [channels, *widths[:-1]]
        self.stem = nn.Conv2d(3, channels, 3, 1, 1)
        self.blocks = nn.ModuleList(Residual(*it) for it in zip(before, widths, strides, strict=True))
        self.head = nn.Linear(widths[-1], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.stem(x)
        for block in self.blocks:
            found = block(found)
        return self.head(found.mean((2, 3)))  # type: ignore[no-any-return]


def made(model: str, size: str) -> tuple[nn.Module, Any]:
    """The model, and a function that draws a batch."""
    if model == "gpt":
        layers, width, length = GPT_SIZES[size]

        def words() -> tuple[torch.Tensor, torch.Tensor]:
            x = torch.randint(0, WORDS, (BATCH, length))
            return x, x.flatten()

        return Gpt(layers, width, length), words

    def images() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))

    return Resnet(*RESNET_SIZES[size]), images


def wrapped(net: nn.Module, strategy: str) -> tuple[nn.Module, torch.optim.Optimizer]:
    """The model and its optimizer under the strategy."""
    if strategy == "fsdp2":
        from torch.distributed.fsdp import fully_shard

        for block in net.blocks:  # type: ignore[union-attr]
            fully_shard(block)
        fully_shard(net)
    elif strategy in ("ddp", "zero-1"):
        net = nn.parallel.DistributedDataParallel(net)
    if strategy == "zero-1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return net, ZeroRedundancyOptimizer(net.parameters(), torch.optim.AdamW, lr=1e-4)
    return net, torch.optim.AdamW(net.parameters(), lr=1e-4)


def main() -> None:
    """Train, and print the result where steps are counted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("gpt", "resnet"), default="gpt")
    parser.add_argument("--size", choices=tuple(GPT_SIZES), default="small")
    parser.add_argument("--strategy", choices=("", "ddp", "zero-1", "fsdp2"), default="")
    parser.add_argument("--steps", type=int, default=100_000)
    choices = parser.parse_args()
    torch.manual_seed(0)
    if choices.strategy:
        dist.init_process_group("gloo")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    net, batch = made(choices.model, choices.size)
    net, optimizer = wrapped(net, choices.strategy)
    seconds = []
    for _ in range(choices.steps):
        began = time.perf_counter()
        x, y = batch()
        optimizer.zero_grad()
        functional.cross_entropy(net(x).flatten(0, -2), y).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - began)
    counted = seconds[WARM_UP:]
    found = torch.tensor(
        [sum(counted) / len(counted), 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)]
    )
    if choices.strategy:
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"step_seconds": found[0].item(), "added_bytes": found[1].item()}))
    if choices.strategy:
        dist.barrier()  # a rank that ends first would abort the others
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
