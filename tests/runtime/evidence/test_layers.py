"""The layers that one forward used, and which of them a batch-norm follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hotlap.evidence import LayerUse
from hotlap.runtime.evidence.layers import STEP_WATCHED, LayerWatch
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception

Watch = Callable[..., tuple[LayerUse, ...]]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Trains a model for four steps in this process, and returns the layers that were observed."""
    hooks = Hooks(torch=torch)
    interception = Interception(hooks)
    interception.install()

    def train(model: nn.Module, inputs: torch.Tensor) -> tuple[LayerUse, ...]:
        clock: Any = SimpleNamespace(steps_done=0)
        watching = LayerWatch(interception, clock)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(STEP_WATCHED + 2):
            clock.steps_done = step
            model(inputs).sum().backward()
            optimizer.step()
            clock.steps_done = step + 1
            for tell in hooks.step_ended:
                tell()
        assert not any(it._forward_hooks for it in model.modules())
        assert hooks.before_forward == hooks.after_forward == hooks.step_ended == []
        found = watching.result()["layers"]
        assert isinstance(found, tuple)
        return found

    yield train
    interception.suspend()


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3)
        self.third = nn.Conv2d(8, 8, 3)
        self.after_activation = nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 4, bias=False)
        self.unused = nn.Linear(5, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.first(images))
        hidden = self.second(torch.relu(hidden))
        hidden = self.third(hidden)
        hidden = self.after_activation(torch.relu_(hidden))  # in place: the same tensor, but not as it was
        return self.head(hidden.mean(dim=(2, 3)))


def test_layers_are_reported_as_they_were_used(watch: Watch) -> None:
    assert watch(Blocks(), torch.randn(2, 3, 12, 12)) == (
        LayerUse(kind="Conv2d", name="first", weight_shape=(8, 3, 3, 3), bias=True, normalised_after=True),
        LayerUse(kind="Conv2d", name="second", weight_shape=(8, 8, 3, 3), bias=True, count=2),
        LayerUse(kind="Linear", name="head", weight_shape=(4, 8)),
    )


def test_a_batch_norm_that_only_evaluates_normalises_nothing_away(watch: Watch) -> None:
    model = Blocks()
    model.norm.eval()
    assert not any(it.normalised_after for it in watch(model, torch.randn(2, 3, 12, 12)))


def test_embeddings_and_recurrent_layers(watch: Watch) -> None:
    class Text(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(11, 6)
            self.recurrent = nn.LSTM(6, 7, batch_first=True)
            self.norm = nn.LayerNorm(7)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.norm(self.recurrent(self.embedding(tokens))[0])

    found = watch(Text(), torch.randint(11, (2, 5)))
    assert [(it.kind, it.name, it.weight_shape, it.bias) for it in found] == [
        ("Embedding", "embedding", (11, 6), False),
        ("LSTM", "recurrent", (28, 6), True),
    ]


def test_a_weight_that_is_computed_is_not_computed_once_more(watch: Watch) -> None:
    calls = []

    class Doubled(nn.Module):
        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            calls.append(1)
            return 2 * weight

    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    torch.nn.utils.parametrize.register_parametrization(model[0], "weight", Doubled())
    calls.clear()
    found = watch(model, torch.randn(2, 3))
    assert [it.name for it in found] == ["1"]
    assert len(calls) == STEP_WATCHED + 2


def test_a_model_with_a_compiled_part_is_left_alone(watch: Watch) -> None:
    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = torch.compile(nn.Linear(3, 3), backend="eager")
            self.rest = nn.Linear(3, 1)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return self.rest(inputs) + self.part.weight.sum()  # type: ignore[attr-defined]

    assert watch(Whole(), torch.randn(2, 3)) == ()


def test_in_a_launch(launch) -> None:  # type: ignore[no-untyped-def]
    script = """
for inputs, targets in DataLoader(data, batch_size=32):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
    assert not any(it._forward_hooks for it in model.modules())
"""
    _, evidence = launch(script, steps=8)
    assert evidence.layers == (
        LayerUse(kind="Linear", name="0", weight_shape=(16, 8), bias=True),
        LayerUse(kind="Linear", name="2", weight_shape=(1, 16), bias=True),
    )
