"""The measurement itself, run as the script of a trial: steps with the hooks in place and steps without, in turns.

Two launches of the same code differ by more than the hooks cost, so the comparison has to stay within a process. Prints
one JSON object: the median step without hooks, and the mean difference over the turns, in seconds.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.runtime.boot import active
from hotlap.runtime.clock import StepClock

SETTLING_STEPS = 50
"""Steps after each change that do not count: replaced attributes make the interpreter discard what it specialised."""


def model_of(kind: str) -> tuple[nn.Module, int]:
    """A model by name, and the width of its input."""
    if kind == "tiny":
        return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 10)), 16
    if kind in ("some-layers", "many-layers"):
        count = 100 if kind == "many-layers" else 30
        layers = [layer for _ in range(count) for layer in (nn.Linear(32, 32), nn.Tanh())]
        return nn.Sequential(*layers, nn.Linear(32, 10)), 32
    return nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)), 256


class Training:
    """A plain training loop that can be run for a stretch of steps."""

    def __init__(self, kind: str, device: torch.device) -> None:
        self._model, width = model_of(kind)
        self._model.to(device)
        self._device = device
        data = TensorDataset(torch.randn(32 * 64, width), torch.randint(0, 10, (32 * 64,)))
        self._loader = DataLoader(data, batch_size=32, shuffle=True)
        self._batches = iter(self._loader)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.01)
        self._loss = nn.CrossEntropyLoss()

    def step(self) -> None:
        try:
            inputs, targets = next(self._batches)
        except StopIteration:
            self._batches = iter(self._loader)
            inputs, targets = next(self._batches)
        self._optimizer.zero_grad()
        self._loss(self._model(inputs.to(self._device)), targets.to(self._device)).backward()
        self._optimizer.step()

    def stretch(self, steps: int) -> float:
        """Seconds per step: on a CPU, whose steps end when they return, the 20th percentile, which other
        processes hardly affect; on a device the mean."""
        if self._device.type != "cpu":
            return self._mean(steps)
        seconds = []
        for _ in range(steps):
            began = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - began)
        return statistics.quantiles(seconds, n=5)[0]

    def _mean(self, steps: int) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / steps


def differences(kind: str, device: str, turns: int, stretch_seconds: float) -> dict[str, float]:
    """Medians over the turns: of the stretches without hooks, and of the paired differences.

    Raises :class:`RuntimeError` outside a trial, where there are no hooks to take away.
    """
    interception = active()
    if interception is None:
        raise RuntimeError("Run this under hotlap: python -m bench.overhead does.")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    training = Training(kind, torch.device(device))
    # The clock hung its own methods on the hooks. What it wrote is summed up after each stretch, as at the end of a
    # trial's block: on a device its events are then used again, and it makes no new ones.
    clock = interception.hooks.around_fetch[0].__self__
    assert isinstance(clock, StepClock)
    training.stretch(50)
    steps = max(10, math.ceil(stretch_seconds / training.stretch(50)))
    without, paired = [], []
    for turn in range(turns):
        found = {}
        for hooked in (True, False) if turn % 2 else (False, True):
            (interception.resume if hooked else interception.suspend)()
            training.stretch(SETTLING_STEPS)
            clock.drain()
            found[hooked] = training.stretch(steps)
            clock.drain()
        without.append(found[False])
        paired.append(found[True] - found[False])
    return {"plain_seconds": statistics.median(without), "cost_seconds": statistics.median(paired)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("tiny", "medium", "many-layers"), default="tiny")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--stretch-seconds", type=float, default=0.4)
    arguments = parser.parse_args()
    print(json.dumps(differences(arguments.kind, arguments.device, arguments.turns, arguments.stretch_seconds)))


if __name__ == "__main__":
    main()
