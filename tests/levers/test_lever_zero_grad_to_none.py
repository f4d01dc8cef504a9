"""Gradients that are dropped instead of filled with zeros: the same losses, and nothing held between steps."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import ScriptFacts, Situation
from hotlap.runtime.gradient_clearing import ClearingWatch

OWNERS = (torch.optim.Optimizer, torch.nn.Module)


@pytest.fixture(autouse=True)
def torch_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore ``zero_grad`` after each test."""
    for owner in OWNERS:
        monkeypatch.setattr(owner, "zero_grad", owner.zero_grad)


def train(driver, model, batch, *, of_model: bool) -> tuple[list[float], list[bool]]:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, held = [], []
    for _ in range(4):
        if of_model:
            model.zero_grad(False)
        else:
            optimizer.zero_grad(set_to_none=False)
        held.append(any(it.grad is not None for it in model.parameters()))
        loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(loss.item())
    return losses, held


@pytest.mark.parametrize("of_model", [False, True], ids=["optimizer", "model"])
def test_losses_are_the_same_and_no_gradient_is_held(driver, driver_kind, model, batch, of_model: bool) -> None:
    other = copy.deepcopy(model)
    losses, held = train(driver_kind(), other, batch, of_model=of_model)
    assert any(held)
    driver.install(make_setting("zero-grad-to-none"))
    assert train(driver, model, batch, of_model=of_model) == (losses, [False] * 4)


def put(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@pytest.mark.parametrize("clear", [lambda it: it.zero_grad(False), lambda it: it.zero_grad(set_to_none=False)])
@pytest.mark.parametrize("of_model", [False, True], ids=["optimizer", "model"])
def test_zeros_are_noticed_however_they_are_requested(model, clear: Any, of_model: bool) -> None:
    watch = ClearingWatch(torch, put)
    cleared = model if of_model else torch.optim.SGD(model.parameters(), lr=0.1)
    cleared.zero_grad()
    cleared.zero_grad(set_to_none=True)
    assert not watch.fills_with_zeros
    clear(cleared)
    assert watch.fills_with_zeros


def test_it_is_tried_only_where_the_script_fills_with_zeros() -> None:
    lever = find("zero-grad-to-none")
    refused = lever.obstacle(Situation())
    assert refused is not None and refused.already
    assert lever.obstacle(Situation(facts=ScriptFacts(zeroes_gradients=True))) is None
