"""Weights that are updated in the backward pass: the same losses and state, and no gradient afterwards."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import ModelFacts, OptimizerFacts, ScriptFacts, Situation

SETTING = make_setting("optimizer-in-backward")
ADAM = OptimizerFacts(kind="Adam", parameters=4, learning_rate=0.1)
SITUATION = Situation(facts=ScriptFacts(optimizers=(ADAM,), models=(ModelFacts(kind="Net", parameters=4),)))
KINDS: list[tuple[type, dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": True}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.RMSprop, {"lr": 0.01}),
]


class Tied(torch.nn.Module):
    """One weight is used twice, and one never."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(6, 6), torch.nn.Linear(6, 3)
        self.unused = torch.nn.Linear(6, 6)

    def forward(self, inputs: Any) -> Any:
        return self.second(self.first(torch.relu(self.first(inputs))))


def train(driver, model, optimizer, batch, seen: list[bool], steps: int = 4) -> list[float]:
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.7)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
        driver.backward(loss)
        seen.append(any(it.grad is not None for it in model.parameters()))
        driver.step(optimizer)
        schedule.step()
        losses.append(loss.item())
    return losses


def grouped(model: Tied) -> list[dict[str, Any]]:
    return [
        {"params": list(model.first.parameters())},
        {"params": [*model.second.parameters(), *model.unused.parameters()], "lr": 0.02},
    ]


@pytest.mark.parametrize(("kind", "arguments"), KINDS, ids=lambda it: getattr(it, "__name__", ""))
def test_losses_weights_and_state_are_those_of_the_script(
    driver, driver_kind, batch, kind: type, arguments: dict[str, Any]
) -> None:
    torch.manual_seed(3)
    model = Tied()
    other = copy.deepcopy(model)
    plain = driver_kind()
    plain_seen: list[bool] = []
    own = plain.optimizer(kind, grouped(other), **arguments)
    losses = train(plain, other, own, batch, plain_seen)
    driver.install(SETTING)
    optimizer = driver.optimizer(kind, grouped(model), **arguments)
    seen: list[bool] = []
    assert train(driver, model, optimizer, batch, seen) == losses
    assert all(plain_seen) and not any(seen), "no gradient is left after the backward pass"
    for one, same in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, same)
    states, own_states = optimizer.state_dict(), own.state_dict()
    assert states["param_groups"] == own_states["param_groups"] and states["state"].keys() == own_states["state"].keys()
    assert driver.hooks.notes == []


def test_only_the_scripts_own_calls_count_as_steps(driver, model, batch) -> None:
    """torch's hooks for steps, by which hotlap counts them, are called once per step."""
    driver.install(SETTING)
    optimizer = driver.optimizer(torch.optim.Adam, model.parameters(), lr=0.01)
    called: list[object] = []
    optimizer.register_step_pre_hook(lambda *it: called.append(it))
    train(driver, model, optimizer, batch, [], steps=3)
    assert len(called) == 3


def test_a_second_optimizer_ends_it_before_the_first_update(driver, model, batch) -> None:
    driver.install(SETTING)
    optimizer = driver.optimizer(torch.optim.Adam, model[0].parameters(), lr=0.01)
    driver.optimizer(torch.optim.SGD, model[2].parameters(), lr=0.01)
    seen: list[bool] = []
    train(driver, model, optimizer, batch, seen)
    assert all(seen) and "several optimizers" in driver.hooks.notes[0]


def test_a_refusal_is_noted_once_whatever_else_was(driver, model, batch) -> None:
    driver.hooks.note("Another lever's remark.")
    driver.install(SETTING)
    driver.optimizer(torch.optim.LBFGS, model.parameters())
    driver.optimizer(torch.optim.Adam, model[0].parameters())
    assert [it for it in driver.hooks.notes if "LBFGS" in it] == driver.hooks.notes[1:]
    assert all(not it._post_accumulate_grad_hooks for it in model.parameters())


def test_a_closure_ends_it_before_the_first_update(driver, model, batch) -> None:
    driver.install(SETTING)
    optimizer = driver.optimizer(torch.optim.SGD, model.parameters(), lr=0.1)
    before = [it.detach().clone() for it in model.parameters()]

    def closure() -> Any:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        return loss

    driver.step(optimizer, closure)
    assert "closure" in driver.hooks.notes[0]
    for weight, old in zip(model.parameters(), before, strict=True):
        assert torch.allclose(weight, old - 0.1 * weight.grad) and not torch.equal(weight, old)


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"clips_gradients": True}, "clips gradients"),
        ({"grad_scaler": True}, "scales its loss"),
        ({"backwards_per_step": 4.0}, "several backward passes"),
        ({"processes": 2}, "Several processes"),
        ({"optimizers": (ADAM, ADAM)}, "several optimizers"),
        ({"optimizers": (OptimizerFacts(kind="LBFGS", parameters=4, learning_rate=1.0),)}, "LBFGS"),
        ({"optimizers": ()}, "no optimizer of torch"),
    ],
)
def test_what_needs_all_gradients_is_a_reason_not_to_try(facts: dict[str, Any], said: str) -> None:
    lever = find("optimizer-in-backward")
    assert lever.obstacle(SITUATION) is None
    refused = lever.obstacle(
        msgspec.structs.replace(SITUATION, facts=msgspec.structs.replace(SITUATION.facts, **facts))
    )
    assert refused is not None and said in refused.reason
