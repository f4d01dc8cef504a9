"""What is known of a model's repeated blocks after its first steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hotlap.records import Assignment, BlockFacts, Observe, Workload
from hotlap.runtime.clock import StepClock
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.interception import Interception
from hotlap.runtime.observer import Observer

WORKLOAD = Workload(kind="script", target=__file__, directory=str(Path(__file__).parent), python="python")


@pytest.fixture
def observer() -> Iterator[Observer]:
    interception = Interception(Hooks(torch=torch))
    clock = StepClock(interception.hooks, source="auto", scaling=interception, on_step=lambda: None)
    made = Observer(interception, clock, Assignment(workload=WORKLOAD, instruments=(Observe(),)))
    interception.install()
    yield made
    interception.suspend()


class Net(nn.Module):
    def __init__(self, block: Callable[[], nn.Module], reentrant: bool | None = None) -> None:
        super().__init__()
        self.stages = nn.ModuleDict({"first": nn.Sequential(*(block() for _ in range(3)))})
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        plain = self.reentrant is None or not torch.is_grad_enabled()
        for block in self.stages["first"]:  # type: ignore[attr-defined]
            x = block(x) if plain else checkpoint(block, x, use_reentrant=self.reentrant)
        return x


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


def blocks_of(observer: Observer, model: nn.Module, steps: int = 4) -> BlockFacts | None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(2, 4, requires_grad=True)).mean().backward()
        optimizer.step()
        with torch.no_grad():
            model(torch.ones(2, 4))
    assert not any(it._forward_pre_hooks for it in model.modules())
    (facts,) = observer.facts().models
    return facts.blocks


@pytest.mark.parametrize("compiled", [False, True])
def test_whose_forward_it_is_and_whether_it_is_compiled(observer: Observer, compiled: bool) -> None:
    model = linear()
    if compiled:
        model.forward = torch.compile(model.forward, backend="eager")  # type: ignore[method-assign]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    (facts,) = observer.facts().models
    assert facts.forward_of_torch and facts.compiled is compiled


class Seeded(torch.nn.Sequential):
    """As a model of Keras: its first parameter counts what was drawn, and ``compile()`` takes a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = torch.nn.Parameter(torch.zeros(2, dtype=torch.int32), requires_grad=False)
        self.append(torch.nn.Linear(4, 4))

    def compile(self, *, loss: str) -> None:  # type: ignore[override]
        raise AssertionError("this is the script's to call")


@pytest.mark.parametrize(("make", "another"), [(Seeded, True), (linear, False)])
def test_the_type_of_most_numbers_and_whose_compile_it_is(
    observer: Observer, make: Callable[[], torch.nn.Module], another: bool
) -> None:
    model = make()
    optimizer = torch.optim.SGD([it for it in model.parameters() if it.requires_grad], lr=0.1)
    for _ in range(2):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    (facts,) = observer.facts().models
    assert facts.dtype == "float32" and facts.compile_of_its_own is another


@pytest.mark.parametrize("compiled", [False, True])
def test_the_blocks_that_can_share_compiled_code(observer: Observer, compiled: bool) -> None:
    model = Net(linear)
    for block in model.stages["first"] if compiled else ():  # type: ignore[attr-defined]
        block.forward = torch.compile(block.forward, backend="eager")
    blocks_of(observer, model)
    (facts,) = observer.facts().models
    (run,) = facts.repeated
    assert (run.kind, run.count, run.forward_of_torch, run.compiled) == ("Sequential", 3, True, compiled)
    assert run.place == '.stages["first"]' and not facts.compiled


def test_a_forward_of_its_own_is_none_of_torchs(observer: Observer) -> None:
    blocks_of(observer, Net(linear))
    (facts,) = observer.facts().models
    assert not facts.forward_of_torch and not facts.compiled


def test_blocks_are_found_with_their_place(observer: Observer) -> None:
    assert blocks_of(observer, Net(linear)) == BlockFacts(kind="Sequential", count=3, place='.stages["first"]')


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_script_that_recomputes_them_is_seen(observer: Observer, reentrant: bool) -> None:
    found = blocks_of(observer, Net(linear, reentrant))
    assert found is not None and found.recomputed and not found.updates_buffers


def test_batch_norm_is_seen_to_update_its_buffers(observer: Observer) -> None:
    found = blocks_of(observer, Net(normed))
    assert found is not None and found.updates_buffers and not found.recomputed


def test_a_model_without_blocks_has_none(observer: Observer) -> None:
    assert blocks_of(observer, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))) is None


class WithLoss(Net):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:  # type: ignore[override]
        found = super().forward(x)
        return found, found.mean()


def test_outputs_with_one_entry_per_sample_are_distinguished_from_others(observer: Observer) -> None:
    for model, expected in ((Net(linear), True), (WithLoss(linear), False)):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            output = model(torch.ones(2, 4))
            (output if isinstance(output, torch.Tensor) else output[1]).mean().backward()
            optimizer.step()
        assert observer.facts().models[-1].outputs_by_sample is expected
