"""A user's module whose models break an engine while it converts them, each in one way; torch itself runs them well."""

from __future__ import annotations

import ctypes
import time
from typing import Any

import torch


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(16, 16, batch_first=True)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            self.break_engine()
        output: torch.Tensor = self.layer(rows)[0]
        return output

    def break_engine(self) -> None:
        raise NotImplementedError


class Hanging(Recurrent):
    def break_engine(self) -> None:
        time.sleep(3600)


class Segfaulting(Recurrent):
    def break_engine(self) -> None:
        ctypes.string_at(0)


class Hungry(Recurrent):
    def break_engine(self) -> None:
        torch.empty(2**50, dtype=torch.uint8)  # more than any machine has


def loaded(kind: type[Recurrent]) -> torch.nn.Module:
    """With weights that no seed changes."""
    model = kind().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.sin(torch.arange(parameter.numel()) / 7.0).reshape(parameter.shape))
    return model


def hanging() -> Any:
    return loaded(Hanging)


def segfaulting() -> Any:
    return loaded(Segfaulting)


def hungry() -> Any:
    return loaded(Hungry)


def rows() -> list[torch.Tensor]:
    return [torch.sin(torch.arange(8 * 4 * 16) / (3.0 + number)).reshape(8, 4, 16) for number in range(3)]
