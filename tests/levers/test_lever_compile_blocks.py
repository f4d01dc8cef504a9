"""The compile lever on the repeated blocks of a model: which they are, and that one compilation serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from hotlap.levers.api import find
from hotlap.levers.support.blocks import same_blocks
from hotlap.levers.support.situations import make_setting

# torch looks at the gradients of a block's inputs, and suppresses its own warning unless warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")

BLOCKS = make_setting("compile", mode="default", dynamic=False, blocks=True)


class Layer(nn.Module):
    def __init__(self, width: int = 8, hidden: int = 16) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Net(nn.Module):
    def __init__(self, make: Callable[[], nn.Module], count: int = 10) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 8)  # so that the first block's input has a gradient, as those of the others
        self.layers = nn.ModuleList([make() for _ in range(count)])
        self.head = nn.Linear(8, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


KINDS: dict[str, Callable[[], nn.Module]] = {
    "own class": Layer,
    "sequential": lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh()),
    "torch's layer": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Every graph that is compiled, by a backend that runs it as it is: no kernel is generated."""
    compile_with = torch.compile
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(torch, "compile", lambda function, **given: compile_with(function, **given, backend=backend))
    torch.compiler.reset()
    yield found
    torch.compiler.reset()


def train(driver: Any, model: nn.Module, optimizer: Any, steps: int = 3) -> list[float]:
    inputs = torch.randn(4, 5, 8, generator=torch.Generator().manual_seed(3))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = driver.forward(model, inputs).square().mean()
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(loss.item())
    return losses


def trained(driver: Any, make: Callable[[], nn.Module]) -> tuple[list[float], nn.Module]:
    torch.manual_seed(1)
    model = Net(make)
    return train(driver, model, driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)), model


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_one_compilation_serves_all_blocks(driver: Any, graphs: list[Any], make: Callable[[], nn.Module]) -> None:
    expected, plain = trained(type(driver)(), make)
    driver.install(BLOCKS)
    found, model = trained(driver, make)
    assert len(graphs) == 1
    assert found == pytest.approx(expected, rel=1e-5)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [type(it) for it in model.modules()] == [type(it) for it in plain.modules()]
    assert not driver.hooks.notes


def test_a_model_without_repeated_blocks_is_left_alone_with_a_note(driver: Any, graphs: list[Any], model: Any) -> None:
    driver.install(BLOCKS)
    driver.forward(model, torch.randn(2, 6))
    assert not graphs
    assert "has no repeated blocks" in driver.hooks.notes[0]


def test_what_the_script_compiled_stays_as_it_compiled_it(driver: Any, graphs: list[Any]) -> None:
    driver.install(BLOCKS)
    model = Net(Layer)
    model.layers[2].compile()
    own = model.layers[2]._compiled_call_impl
    train(driver, model, driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1))
    assert model.layers[2]._compiled_call_impl is own
    assert all(it._compiled_call_impl is not None for it in model.layers)


class OfItsOwn(Net):
    """As a model of Keras, whose ``compile()`` says by which loss and optimizer it is trained."""

    def compile(self, *, loss: str) -> None:  # type: ignore[override]
        raise AssertionError("this is the script's to call")


def test_a_model_with_another_compile_is_compiled_by_that_of_torch(driver: Any, graphs: list[Any]) -> None:
    driver.install(make_setting("compile", mode="default", dynamic=False))
    model = OfItsOwn(Layer, count=2)
    train(driver, model, driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1))
    assert len(graphs) == 1 and not driver.hooks.notes


def test_switched_off_the_blocks_run_eagerly_and_on_again_nothing_is_compiled(driver: Any, graphs: list[Any]) -> None:
    switch = find("compile").switch
    assert switch is not None
    both = switch(driver.hooks, BLOCKS)
    torch.manual_seed(1)
    model = Net(Layer)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    train(driver, model, optimizer)
    assert not graphs
    both.on()
    train(driver, model, optimizer)
    compiled = [it._compiled_call_impl for it in model.layers]
    assert len(graphs) == 1 and None not in compiled
    both.off()
    assert [it._compiled_call_impl for it in model.layers] == [None] * 10
    both.on()
    train(driver, model, optimizer)
    assert [it._compiled_call_impl for it in model.layers] == compiled and len(graphs) == 1


def places(model: nn.Module) -> dict[str, int]:
    return {it.place: len(it.blocks) for it in same_blocks(torch, model)}


def test_blocks_are_found_in_every_container_and_only_where_two_are_alike() -> None:
    model = nn.Module()
    model.encoder = nn.ModuleList([Layer() for _ in range(3)])
    model.decoder = nn.Sequential(nn.Linear(8, 8), Layer(), Layer(), nn.ReLU())
    model.different = nn.ModuleList([Layer(hidden=it) for it in (16, 32, 64)])
    model.heads = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
    assert places(model) == {".encoder": 3, ".decoder[1:3]": 2}


def test_of_blocks_inside_blocks_the_outer_ones_are_taken_unless_they_differ() -> None:
    experts = lambda: nn.ModuleDict({"experts": nn.ModuleList([Layer() for _ in range(2)])})  # noqa: E731
    same = nn.Module()
    same.layers = nn.ModuleList([experts() for _ in range(3)])
    assert places(same) == {".layers": 3}
    stages = nn.Module()
    stages.stages = nn.ModuleList(
        [nn.Sequential(Layer(), Layer()), nn.Sequential(*(Layer(hidden=32) for _ in range(4)))]
    )
    assert places(stages) == {".stages[0]": 2, ".stages[1]": 4}
