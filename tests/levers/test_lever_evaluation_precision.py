"""Evaluations in a 16-bit format: their outputs stay float32, and training stays the same to the last bit."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.nn import functional

from hotlap.levers.api import find
from hotlap.levers.support.situations import make_setting
from hotlap.records import EVALUATION_SECONDS, EvaluationFacts, Machine, ModelFacts, ScriptFacts, Situation

SETTING = make_setting("evaluation-precision", dtype="bfloat16")


def run(driver: Any, model: Any, batch: Any) -> tuple[list[float], list[float]]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, held_out = [], []
    for _ in range(3):
        optimizer.zero_grad()
        loss = functional.cross_entropy(driver.forward(model.train(), batch[0]), batch[1])
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(float(loss.detach()))
        with torch.no_grad():
            output = driver.forward(model.eval(), batch[0])
        assert output.dtype == torch.float32
        held_out.append(float(functional.cross_entropy(output, batch[1])))
    return losses, held_out


def test_training_is_the_same_and_evaluations_are_rounded(driver, driver_kind, model, batch) -> None:
    losses, held_out = run(driver_kind(), copy.deepcopy(model), batch)
    driver.install(SETTING)
    same_losses, rounded = run(driver, model, batch)
    assert same_losses == losses
    assert rounded != held_out and rounded == pytest.approx(held_out, rel=0.01)


@dataclass
class Output:
    logits: Any
    hidden: tuple[Any, ...]
    steps: int = 3


class Structured(torch.nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Any) -> Any:
        logits = self.inner(inputs)
        return {"output": Output(logits, (logits.argmax(1), inputs)), "name": "kept"}


def test_structures_are_kept(driver, model, batch) -> None:
    driver.install(SETTING)
    with torch.no_grad():
        found = driver.forward(Structured(model).eval(), batch[0])
    assert found["name"] == "kept" and found["output"].steps == 3
    assert found["output"].logits.dtype == torch.float32
    assert found["output"].hidden[0].dtype == torch.int64 and found["output"].hidden[1] is batch[0]


def test_a_model_in_training_mode_and_the_scripts_own_region_are_left_alone(driver, model, batch) -> None:
    with torch.no_grad():
        plain = model(batch[0])
    driver.install(SETTING)
    with torch.no_grad():
        assert torch.equal(driver.forward(model.train(), batch[0]), plain), "a teacher, or an actor that explores"
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert driver.forward(model.eval(), batch[0]).dtype == torch.bfloat16


MODEL = (ModelFacts(kind="Net", parameters=10),)
SEEN = EvaluationFacts(forwards=3)


def situation(evaluation: Any = SEEN, models: Any = MODEL, dtypes: tuple[str, ...] = ("bfloat16",)) -> Situation:
    facts = ScriptFacts(device="cpu", evaluation=evaluation, models=models)
    return Situation(facts=facts, machine=Machine(native_dtypes=dtypes))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (situation(), None),
        (situation(None), "No evaluation was observed"),
        (situation(EvaluationFacts(forwards=3, autocast_dtype="bfloat16")), "already evaluates under autocast"),
        (situation(EvaluationFacts(forwards=3, with_gradients=True)), "records gradients"),
        (situation(models=(ModelFacts(kind="Net", parameters=10, dtype="bfloat16"),)), "not in float32"),
        (situation(dtypes=("float32",)), "No 16-bit format"),
    ],
)
def test_it_is_tried_where_an_evaluation_may_become_faster(where: Situation, reason: str | None) -> None:
    lever = find("evaluation-precision")
    refused = lever.obstacle(where)
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)
    assert lever.improves == (EVALUATION_SECONDS,) and lever.changes_evaluation
