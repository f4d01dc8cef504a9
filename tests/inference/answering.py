"""A script as a user writes it: it gets the same inputs each time it runs, and prints its first answers."""

from __future__ import annotations

import sys

import torch


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(16, 64)
        self.second = torch.nn.Linear(64, 4)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.second(torch.relu(self.first(rows)))
        return found


def main(calls: int) -> None:
    torch.manual_seed(0)
    model = Net()
    model.eval()
    with torch.no_grad():
        for number in range(calls):
            logits = model(torch.randn(8, 16))
            if number < 20:
                print(logits.argmax(1).tolist(), f"{float(logits.sum()):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
