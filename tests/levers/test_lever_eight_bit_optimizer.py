"""The lever that keeps the optimizer's state in 8 bits, on real steps; needs torchao."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from hotlap.levers.optimizer.eight_bit_optimizer import candidates, obstacle
from hotlap.levers.support.situations import make_setting
from hotlap.records import OptimizerFacts, ScriptFacts, Situation

SETTING = make_setting("eight-bit-optimizer")


def situation(kind: str = "AdamW", *, packages: tuple[str, ...] = ("torchao",), count: int = 1) -> Situation:
    optimizers = (OptimizerFacts(kind=kind, parameters=4, learning_rate=0.1),) * count
    return Situation(facts=ScriptFacts(optimizers=optimizers, packages=packages))


def test_it_applies_where_torchao_is_installed() -> None:
    assert obstacle(situation()) is None and candidates(situation()) == (SETTING,)


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (situation(packages=()), "not installed"),
        (situation("Adagrad"), "Adagrad"),
        (situation(count=2), "exactly one"),
        (Situation(), "exactly one"),
    ],
)
def test_obstacles(where: Situation, said: str) -> None:
    found = obstacle(where)
    assert found is not None and said in found.reason


def train(driver: Any, model: nn.Module, kind: type, steps: int = 12, **arguments: Any) -> tuple[list[float], Any]:
    torch.manual_seed(1)
    optimizer = driver.optimizer(kind, model.parameters(), **arguments)
    inputs, targets = torch.randn(64, 64), torch.randint(0, 4, (64,))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, inputs), targets)
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(loss.item())
    return losses, optimizer


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 4))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (torch.optim.AdamW, {"lr": 1e-3}),
        (torch.optim.Adam, {"lr": 1e-3, "amsgrad": True}),
        (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
        (torch.optim.RMSprop, {"lr": 1e-3}),
    ],
    ids=lambda it: getattr(it, "__name__", ""),
)
def test_the_state_is_encoded_and_nearly_the_same_is_learned(driver, kind: type, arguments: dict[str, Any]) -> None:
    state_of = pytest.importorskip("torchao.optim.subclass_8bit").OptimState8bit
    expected, _ = train(driver, net(), kind, **copy.deepcopy(arguments))
    driver.install(SETTING)
    losses, optimizer = train(driver, net(), kind, **arguments)
    moments = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    wide = [it for it in moments if it.numel() == 64 * 128]
    assert wide and all(isinstance(it, state_of) for it in wide)
    assert not any(isinstance(it, state_of) for it in moments if it.numel() < 4096)
    assert losses[-1] == pytest.approx(expected[-1], rel=0.02) and losses[-1] < losses[0]
    assert losses != expected, "8 bits are fewer than 32"
    assert optimizer.state[next(iter(optimizer.state))].get("step", torch.tensor(12.0)) == 12
