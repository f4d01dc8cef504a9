"""Linear layers in float8: what is converted, by a stand-in for torchao and, where it is installed, by torchao."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from hotlap.levers.api import find
from hotlap.levers.precision import float8_linear
from hotlap.levers.support.situations import make_setting
from hotlap.records import Accelerator, Machine, ModelFacts, ScriptFacts, Situation
from hotlap.runtime.instruments.round_weights import round_weights

SETTING = make_setting("float8-linear", dtype="float8_e4m3fn", recipe="tensorwise", compile=False)


def rounded(tensor: Any) -> Any:
    scale = 448.0 / tensor.detach().abs().max().clamp(min=1e-12)
    return tensor + ((tensor * scale).to(torch.float8_e4m3fn).to(tensor.dtype) / scale - tensor).detach()


class Float8Linear(nn.Linear):
    """Rounds as torchao's does, without its kernels."""

    def forward(self, inputs: Any) -> Any:
        return nn.functional.linear(rounded(inputs), rounded(self.weight), self.bias)


@pytest.fixture
def torchao(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A stand-in that converts layers in place, with their weights; the names of the recipes that were asked for."""
    recipes: list[str] = []

    def convert(module: Any, *, config: Any, module_filter_fn: Any) -> Any:
        for name, child in list(module.named_modules()):
            if type(child) is nn.Linear and module_filter_fn(child, name):
                child.__class__ = Float8Linear
        return module

    def from_recipe_name(name: str) -> str:
        recipes.append(name)
        return name

    stand_in = ModuleType("torchao.float8")
    stand_in.convert_to_float8_training = convert  # type: ignore[attr-defined]
    stand_in.Float8LinearConfig = SimpleNamespace(from_recipe_name=from_recipe_name)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchao", ModuleType("torchao"))
    monkeypatch.setitem(sys.modules, "torchao.float8", stand_in)
    return recipes


def net() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 3))


def losses(driver: Any, model: Any) -> tuple[list[float], Any]:
    torch.manual_seed(1)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    inputs, targets = torch.randn(32, 32), torch.randint(0, 3, (32,))
    found = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(driver.forward(model, inputs), targets)
        driver.backward(loss)
        driver.step(optimizer)
        found.append(loss.item())
    return found, optimizer


def test_layers_of_whole_multiples_are_converted_and_keep_their_weights(driver, driver_kind, torchao) -> None:
    expected, _ = losses(driver_kind(), net())
    driver.install(SETTING)
    model = net()
    names = list(model.state_dict())
    found, optimizer = losses(driver, model)
    assert [type(it) for it in model] == [Float8Linear, nn.ReLU, nn.Linear] and torchao == ["tensorwise"]
    assert list(model.state_dict()) == names
    assert {id(it) for it in model.parameters()} == {id(it) for it in optimizer.param_groups[0]["params"]}
    assert found != expected and found == pytest.approx(expected, rel=0.05)
    assert not driver.hooks.notes


def test_a_model_without_such_a_layer_is_noted(driver, torchao) -> None:
    driver.install(SETTING)
    torch.manual_seed(0)
    driver.forward(nn.Sequential(nn.Linear(6, 3)), torch.randn(2, 6))
    assert driver.hooks.notes == ["No linear layer of the model has sides that are multiples of 16."]


@pytest.mark.filterwarnings("ignore")
def test_torchao_converts_it(driver, driver_kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its emulation, since a CPU has no product in float8."""
    float8 = pytest.importorskip("torchao.float8")
    monkeypatch.setattr(float8_linear, "config_of", lambda recipe: float8.Float8LinearConfig(emulate=True))
    expected, _ = losses(driver_kind(), net())
    driver.install(SETTING)
    model = net()
    found, optimizer = losses(driver, model)
    assert [type(it).__name__ for it in model] == ["Float8Linear", "ReLU", "Linear"]
    assert {id(it) for it in model.parameters()} == {id(it) for it in optimizer.param_groups[0]["params"]}
    assert found != expected and found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_torchao_knows_the_recipes(recipe: str) -> None:
    pytest.importorskip("torchao.float8")
    assert type(float8_linear.config_of(recipe)).__name__ == "Float8LinearConfig"


def test_the_run_with_rounded_weights_scales_them_first() -> None:
    model = nn.Linear(16, 16)
    with torch.no_grad():
        model.weight.mul_(1e-4)
    before = model.weight.detach().clone()
    round_weights(torch, model, "float8_e4m3fn")
    assert not torch.equal(model.weight, before)
    torch.testing.assert_close(model.weight, before, rtol=0.07, atol=float(before.abs().max()) / 448)


HOPPER = Accelerator(kind="cuda", name="A", memory_bytes=1, native_dtypes=("bfloat16", "float8"))
AMPERE = Accelerator(kind="cuda", name="A", memory_bytes=1, native_dtypes=("bfloat16",))


def situation(accelerator: Accelerator = HOPPER, **changes: Any) -> Situation:
    usual: dict[str, Any] = {"device": "cuda:0", "packages": ("torchao",)}
    usual["models"] = (ModelFacts(kind="Net", parameters=10, linears=2),)
    return Situation(facts=ScriptFacts(**{**usual, **changes}), machine=Machine(accelerators=(accelerator,)))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (situation(), None),
        (situation(AMPERE), "no float8 units"),
        (situation(device="cpu"), "needs a GPU"),
        (situation(models=(ModelFacts(kind="Net", parameters=1),)), "no linear layer"),
        (situation(packages=()), "pip install torchao"),
        (situation(processes=2), "Several processes"),
    ],
)
def test_it_is_tried_only_where_it_is_native(where: Situation, reason: str | None) -> None:
    refused = find("float8-linear").obstacle(where)
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)


def test_a_model_that_the_script_compiled_is_not_compiled_again() -> None:
    compiled = situation(models=(ModelFacts(kind="Net", parameters=10, linears=2, compiled=True),))
    candidates = find("float8-linear").candidates
    assert [dict(it.values)["compile"] for it in candidates(situation())] == [True, True]
    assert [dict(it.values)["compile"] for it in candidates(compiled)] == [False, False]
