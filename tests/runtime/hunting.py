"""Hunts for NaN and infinities within this process, and small models to plant them in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from hotlap.records import BadNumber, NumberOrigin

Train = Callable[[], None]
Hunt = Callable[..., BadNumber | None]
INFINITY = float("inf")


class Stop(BaseException):
    """Stands for the end of the process."""


def line(mark: str) -> int:
    """The line of the calling test's file that ends in the comment ``# mark``."""
    lines = Path(sys._getframe(1).f_code.co_filename).read_text(encoding="utf-8").split("\n")
    (number,) = [index + 1 for index, text in enumerate(lines) if text.endswith(f"  # {mark}")]
    return number


def origin(bad: BadNumber | None) -> NumberOrigin:
    assert bad is not None
    assert bad.origin is not None
    return bad.origin


def fit(model: nn.Module, batches: list[torch.Tensor], rate: float = 0.01) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for batch in batches:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()


class Calls(nn.Module):
    """A linear layer, and a function on what it gives."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.head = Head(function)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(self.linear(x))
        return result


class Head(nn.Module):
    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def ones(count: int = 4) -> list[torch.Tensor]:
    return [torch.ones(3, 4) for _ in range(count)]
