"""The hooks with a clock on them, as tests of this folder install them in their own process."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception


class Watched:
    """An interception with a clock on it, and the order of the hooks' calls."""

    def __init__(self, on_step: Callable[[], None] = lambda: None) -> None:
        self.hooks = Hooks(torch=torch)
        self.interception = Interception(self.hooks)
        self.told: list[str] = []
        self.clock = StepClock(self.hooks, source="auto", scaling=self.interception, on_step=on_step)
        self.interception.install()

    def listen(self) -> None:
        tell = self.told.append
        self.hooks.model_found.append(lambda root: tell(f"found {type(root).__name__}"))
        self.hooks.before_backward.append(lambda loss: tell("backward") or loss)
        self.hooks.before_clip.append(lambda parameters, limit: tell(f"clip {limit}"))
        self.hooks.after_update.append(lambda optimizer: tell("update"))

    def steps(self):  # type: ignore[no-untyped-def]
        self.clock.drain()
        return self.clock.steps()


def data(samples: int = 40) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(samples, 8, generator=generator), torch.randn(samples, 1, generator=generator))


def train_on(loader: DataLoader, features: int = 8) -> None:  # type: ignore[type-arg]
    model = nn.Linear(features, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for batch in loader:
        inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
        model(inputs if torch.is_tensor(inputs) else torch.stack(list(inputs))).mean().backward()
        optimizer.step()
