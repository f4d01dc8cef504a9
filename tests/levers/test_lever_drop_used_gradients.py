"""Used gradients are dropped before a forward pass, only where the script clears them itself, and no loss changes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import ScriptFacts, Situation
from hotlap.runtime.gradient_clearing import UsedGradientsWatch

SETTING = make_setting("drop-used-gradients")
STEPS = 6


def run(driver: Any, model: Any, batch: Any, clear: str = "after the forward pass") -> tuple[list[float], list[bool]]:
    """Return the losses, and whether gradients were held after each evaluation."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, held = [], []
    for step in range(STEPS):
        if clear == "before the forward pass":
            optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
        if clear == "after the forward pass" or (clear == "every other step" and step % 2):
            optimizer.zero_grad()
        if clear == "with zeros":
            optimizer.zero_grad(set_to_none=False)
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(float(loss.detach()))
        with torch.no_grad():
            driver.forward(model, batch[0])
        held.append(any(it.grad is not None for it in model.parameters()))
    return losses, held


@pytest.mark.parametrize(
    ("clear", "held"),
    [
        ("after the forward pass", [True, True, False, False, False, False]),
        ("before the forward pass", [True, True, False, False, False, False]),
        ("every other step", [True] * STEPS),
        ("with zeros", [True] * STEPS),
        ("never", [True] * STEPS),
    ],
)
def test_gradients_are_dropped_only_where_the_script_clears_them(
    driver, driver_kind, model, batch, clear: str, held: list[bool]
) -> None:
    losses, before = run(driver_kind(), copy.deepcopy(model), batch, clear)
    assert before == [True] * STEPS
    driver.install(SETTING)
    assert run(driver, model, batch, clear) == (losses, held)


@pytest.mark.parametrize("clear", ["after the forward pass", "never"])
def test_held_gradients_are_observed(driver, model, batch, clear: str) -> None:
    watch = UsedGradientsWatch(driver.hooks)
    run(driver, model, batch, clear)
    size = sum(it.numel() * it.element_size() for it in model.parameters())
    assert (watch.held_bytes(), watch.keeps) == ((size, False) if clear != "never" else (0, True))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (ScriptFacts(used_gradient_bytes=8), ""),
        (ScriptFacts(zeroes_gradients=True, keeps_gradients=True), "fills its gradients with zeros"),
        (ScriptFacts(keeps_gradients=True), "still held when the next backward pass begins"),
        (ScriptFacts(), "No gradients of the last update are held"),
    ],
)
def test_it_is_refused_with_a_reason(facts: ScriptFacts, said: str) -> None:
    found = find("drop-used-gradients").obstacle(Situation(facts=facts))
    assert (found is None) if not said else (found is not None and said in found.reason)
