"""A script as a user writes it: it makes a model, and calls it in a loop (how, how often, with how many samples)."""

from __future__ import annotations

import contextlib
import sys

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 64)
        self.head = torch.nn.Sequential(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(64, 4)))
        with torch.no_grad():
            for index, parameter in enumerate(self.parameters()):
                values = torch.arange(parameter.numel(), dtype=torch.float32)
                parameter.copy_((torch.sin(values * 12.9898 + index) / 4).reshape(parameter.shape))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.layer(rows))
        return logits


class Recurrent(Net):
    """Takes the state that it gave last, and gives the next one."""

    def forward(self, rows: torch.Tensor, states: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:  # type: ignore[override]
        hidden = torch.tanh(self.layer(rows) + states[0] @ self.layer.weight @ self.layer.weight.T)
        return self.head(hidden), hidden


def answer_in_turn(calls: int, samples: int) -> None:
    model = Recurrent().eval()
    states: tuple[torch.Tensor, ...] = (torch.zeros(samples, 64),)
    with torch.no_grad():
        for _ in range(calls):
            logits, *states = model(torch.randn(samples, 16), states)  # type: ignore[assignment]
            assert {it.dtype for it in (logits, *states)} == {torch.float32}


def main(how: str, calls: int, samples: int = 8) -> None:
    if how == "with-states":
        return answer_in_turn(calls, samples)
    model = Net().eval()
    seen = 0.0
    with contextlib.nullcontext() if how == "with-gradients" else torch.no_grad():
        for _ in range(calls):
            logits = model(torch.randn(samples, 16))
            assert logits.dtype == torch.float32 or how == "any-format"
            assert torch.ones(2, 2) @ torch.ones(2, 2) is not None
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32, "a lever's region is left open"
            seen += float(logits.float().sum())
    print(seen)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
