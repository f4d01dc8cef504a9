"""Autocast is detected wherever it is entered: around the model's call, in its forward, or by a wrapper of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from hotlap.records import Assignment, Workload
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.observer import Observer

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")


@pytest.fixture
def observer() -> Iterator[Observer]:
    interception = Interception(Hooks(torch=torch))
    clock = StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    made = Observer(interception, clock, Assignment(workload=WORKLOAD))
    interception.install()
    yield made
    interception.suspend()


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layers(values).float()


class InItsForward(Plain):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(values)


def wrapped() -> nn.Module:
    """As accelerate does it."""
    model = Plain()
    model.forward = torch.autocast("cpu", dtype=torch.bfloat16)(model.forward)  # type: ignore[method-assign]
    return model


def train(model: nn.Module, steps: int = 4) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()


@pytest.mark.parametrize("make", [InItsForward, wrapped])
def test_autocast_within_the_model_is_seen(observer: Observer, make: Callable[[], nn.Module]) -> None:
    train(make())
    assert observer.facts().autocast_dtype == "bfloat16"


def test_autocast_around_the_model_is_seen(observer: Observer) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        train(Plain(), steps=1)
    assert observer.facts().autocast_dtype == "bfloat16"


@pytest.mark.parametrize("make", [Plain, wrapped])
def test_no_hook_is_left_behind(observer: Observer, make: Callable[[], nn.Module]) -> None:
    model = make()
    train(model)
    assert not any(it._forward_pre_hooks for it in model.modules())


def test_a_model_in_full_precision_has_no_autocast(observer: Observer) -> None:
    train(Plain())
    assert observer.facts().autocast_dtype == ""


class Watched(Plain):
    """Record whether its layers had hooks in its forward."""

    def __init__(self, apply: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.apply_layers = apply
        self.hooked: list[bool] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.hooked.append(any(it._forward_pre_hooks for it in self.modules()))
        return self.apply_layers(self.layers, values)


def apply_layers(layers: nn.Module, values: torch.Tensor) -> torch.Tensor:
    return torch.relu(layers(values))


def test_compiled_code_is_left_alone(observer: Observer) -> None:
    model = Watched(torch.compile(apply_layers, backend="eager"))
    train(model)
    assert not any(model.hooked)


def test_layers_are_examined_in_few_steps(observer: Observer) -> None:
    model = Watched(apply_layers)
    train(model, steps=6)
    assert model.hooked == [False, True, True, False, False, False]
