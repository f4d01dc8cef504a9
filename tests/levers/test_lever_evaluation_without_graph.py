"""Evaluations without a graph: nothing is kept of them, and training stays the same to the last bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import EvaluationFacts, ScriptFacts, Situation

SETTING = make_setting("evaluation-without-graph")


def train_step(driver: Any, model: Any, optimizer: Any, batch: Any) -> float:
    optimizer.zero_grad()
    loss = functional.cross_entropy(driver.forward(model, batch[0]), batch[1])
    driver.backward(loss)
    driver.step(optimizer)
    return float(loss.detach())


def run(driver: Any, model: Any, batch: Any) -> tuple[list[float], list[float], list[bool]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, held_out, graphs = [], [], []
    for _ in range(3):
        losses.append(train_step(driver, model.train(), optimizer, batch))
        loss = functional.cross_entropy(driver.forward(model.eval(), batch[0]), batch[1])
        held_out.append(loss.item())
        graphs.append(loss.grad_fn is not None)
    return losses, held_out, graphs


def test_no_evaluation_has_a_graph_and_all_losses_are_the_same(driver, driver_kind, model, batch) -> None:
    losses, held_out, graphs = run(driver_kind(), copy.deepcopy(model), batch)
    assert graphs == [True] * 3
    driver.install(SETTING)
    assert run(driver, model, batch) == (losses, held_out, [False] * 3)
    assert torch.is_grad_enabled()


def test_a_model_that_is_trained_in_evaluation_mode_is_left_alone(driver, driver_kind, model, batch) -> None:
    model.eval()
    other = copy.deepcopy(model)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    expected = [train_step(driver_kind(), other, optimizer, batch) for _ in range(3)]
    driver.install(SETTING)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert [train_step(driver, model, optimizer, batch) for _ in range(3)] == expected


def test_gradients_of_inputs_are_still_computed(driver, model, batch) -> None:
    driver.install(SETTING)
    run(driver, model, batch)
    inputs = batch[0].clone().requires_grad_()
    driver.forward(model.eval(), inputs).sum().backward()
    assert inputs.grad is not None


def test_an_evaluation_that_fails_leaves_gradients_on(driver, model, batch) -> None:
    driver.install(SETTING)
    run(driver, model, batch)
    with pytest.raises(RuntimeError):
        driver.forward(model.eval(), torch.zeros(2, 5))
    assert torch.is_grad_enabled()
    train_step(driver, model.train(), torch.optim.SGD(model.parameters(), lr=0.1), batch)


def test_a_gradient_of_what_was_evaluated_is_an_error(driver, model, batch) -> None:
    driver.install(SETTING)
    run(driver, model, batch)
    with pytest.raises(RuntimeError, match="does not require grad"):
        driver.forward(model.eval(), batch[0]).sum().backward()


@pytest.mark.parametrize(
    ("evaluation", "reason"),
    [
        (None, "No evaluation was observed"),
        (EvaluationFacts(forwards=3), "records no graph"),
        (EvaluationFacts(forwards=3, with_gradients=True), None),
    ],
)
def test_it_is_tried_only_where_an_evaluation_records_a_graph(evaluation: Any, reason: str | None) -> None:
    refused = find("evaluation-without-graph").obstacle(Situation(facts=ScriptFacts(evaluation=evaluation)))
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)
