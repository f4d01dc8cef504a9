"""Batches in micro-batches: the whole step, from loss to scheduler, is that of the whole batch."""

from __future__ import annotations

import copy
from collections import namedtuple
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from hotlap.levers.memory.accumulation import candidates, obstacle, rewrite
from hotlap.levers.support.situations import make_setting
from hotlap.records import ModelFacts, NoSourceForm, ScriptFacts, Situation
from hotlap.runtime.hooks import Hooks

IGNORED = -100


def setting(micro_batches: int) -> Any:
    return make_setting("accumulation", micro_batches=micro_batches)


class Tagger(nn.Module):
    """A class for each token; records how many samples each forward pass gets."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, classes))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        self.seen.append(len(x))
        return self.layers(x if weights is None else x * weights)


class Loop:
    """A training loop with everything that may come between loss and step, with or without a lever."""

    def __init__(self, driver: Any, model: nn.Module, *, clip: float | None, scaled: bool, smoothing: float) -> None:
        self.driver, self.model, self.clip, self.smoothing = driver, model, clip, smoothing
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=1024.0)
        self.history: list[tuple[float, float, float]] = []

    def step(self, inputs: torch.Tensor, targets: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        output = self.driver.forward(self.model, inputs)
        loss = functional.cross_entropy(
            output.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, label_smoothing=self.smoothing
        )
        self.driver.backward(self.scaler.scale(loss))
        self.scaler.unscale_(self.optimizer)
        norm = 0.0
        if self.clip is not None:
            norm = float(self.driver.clip(self.model.parameters(), self.clip))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.history.append((loss.item(), norm, float(self.schedule.get_last_lr()[0])))


@settings(max_examples=25, deadline=None)
@given(
    samples=st.integers(2, 9),
    last=st.integers(1, 9),
    length=st.integers(1, 5),
    width=st.integers(1, 6),
    parts=st.integers(2, 6),
    ignored=st.floats(0, 0.9),
    clip=st.none() | st.floats(0.01, 1.0),
    scaled=st.booleans(),
    smoothing=st.sampled_from([0.0, 0.1]),
    seed=st.integers(0, 1000),
)
def test_every_step_is_that_of_the_whole_batch(
    driver_kind, samples, last, length, width, parts, ignored, clip, scaled, smoothing, seed
) -> None:
    torch.manual_seed(seed)
    plain = Tagger(width, 3).double()
    changed = copy.deepcopy(plain)
    split = driver_kind()
    split.install(setting(parts))
    loops = [
        Loop(driver, model, clip=clip, scaled=scaled, smoothing=smoothing)
        for driver, model in ((driver_kind(), plain), (split, changed))
    ]
    for size in (samples, samples, min(last, samples)):
        inputs, targets = torch.randn(size, length, width).double(), torch.randint(0, 3, (size, length))
        targets[torch.rand(size, length) < ignored] = IGNORED
        targets[0, 0] = 1  # a mean over no token at all is not a number, split or not
        for loop in loops:
            loop.step(inputs, targets)
    for found, expected in zip(loops[1].history, loops[0].history, strict=True):
        assert found == pytest.approx(expected, rel=1e-9)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(changed.state_dict()[name], value, rtol=1e-6, atol=1e-9)
    assert plain.seen == [samples, samples, min(last, samples)]
    assert max(changed.seen) == -(-samples // parts)
    assert not split.hooks.notes


def test_shared_inputs_nested_outputs_and_dropout_are_kept(driver) -> None:
    pair = namedtuple("pair", "first second")

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

        def forward(self, batch: dict[str, torch.Tensor], scale: torch.Tensor, flag: bool = False) -> dict[str, Any]:
            found = self.drop(self.layer(batch["x"])) * scale
            return {"all": pair(found, [found.mean(1), None]), "rows": batch["x"].sum(1)}

    driver.install(setting(3))
    model, inputs = Net(), torch.randn(7, 4)
    output = driver.forward(model, {"x": inputs}, torch.full((4,), 2.0), flag=True)
    assert output["all"].first.shape == (7, 4) and output["all"].second[0].shape == (7,)
    assert output["all"].second[1] is None
    assert torch.equal(output["rows"], inputs.sum(1))
    kept = output["all"].first.detach() != 0
    driver.backward(output["all"].first.sum())
    # The recomputed activations drop the same values: the bias' gradient counts those that were kept.
    torch.testing.assert_close(model.layer.bias.grad, kept.sum(0) * 4.0)


def test_a_model_is_whole_again_after_its_forward_pass(driver) -> None:
    driver.install(setting(2))
    model = Tagger(4, 3)
    driver.forward(model, torch.randn(6, 2, 4))
    assert "forward" not in vars(model)
    with torch.no_grad():
        driver.forward(model, torch.randn(6, 2, 4))
    assert model.seen == [3, 3, 6]


class OwnLoss(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(super().forward(x)).square().mean()


def test_a_model_with_its_own_loss_is_given_whole_batches_and_the_same_random_numbers(driver) -> None:
    model, inputs = OwnLoss(4, 4), torch.randn(6, 4)
    torch.manual_seed(5)
    expected = model(inputs)
    driver.install(setting(2))
    torch.manual_seed(5)
    assert torch.equal(driver.forward(model, inputs), expected)
    assert "one entry per sample" in driver.hooks.notes[0]


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        (nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), torch.randn(6, 4), "batch norm"),
        (nn.Identity(), "a text", "not tensors"),
        (nn.Identity(), object(), "may hold tensors"),
    ],
)
def test_what_cannot_be_split_is_said_and_left_alone(driver, model, inputs, reason: str) -> None:
    driver.install(setting(2))
    expected = copy.deepcopy(model)(inputs)
    found = driver.forward(model, inputs)
    assert reason in driver.hooks.notes[0]
    assert torch.equal(found, expected) if isinstance(inputs, torch.Tensor) else found is inputs


def test_a_batch_holds_less(driver) -> None:
    """The bytes that autograd holds between forward and backward."""
    held = []
    for parts in (None, 4):
        model = nn.Sequential(*(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(12)))
        driver.hooks = Hooks(torch=torch)
        if parts:
            driver.install(setting(parts))
        kept: list[int] = []

        def keep(tensor: torch.Tensor, kept: list[int] = kept) -> torch.Tensor:
            kept.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda it: it):
            driver.forward(model, torch.randn(128, 64))
        held.append(sum(kept))
    assert held[1] < held[0] / 4


# -- when it applies ---------------------------------------------------------------------------------

MODEL = ModelFacts(kind="Net", parameters=1, input_shapes=((8, 4),), outputs_by_sample=True)


def situation(*models: ModelFacts, processes: int = 1) -> Situation:
    return Situation(facts=ScriptFacts(models=models, processes=processes))


def test_it_applies_where_outputs_are_by_sample() -> None:
    assert obstacle(situation(MODEL)) is None
    assert candidates(situation(MODEL)) == (setting(4), setting(2))
    three = msgspec.structs.replace(MODEL, input_shapes=((8, 4), (3, 4)))
    assert candidates(situation(three)) == (setting(2),)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (situation(), "No model"),
        (situation(MODEL, MODEL), "Several models"),
        (situation(MODEL, processes=2), "Several processes"),
        (situation(msgspec.structs.replace(MODEL, batch_norms=1)), "batch norm"),
        (situation(msgspec.structs.replace(MODEL, compiled=True)), "compiles"),
        (situation(msgspec.structs.replace(MODEL, outputs_by_sample=False)), "own loss"),
        (situation(msgspec.structs.replace(MODEL, input_shapes=((1, 4),))), "one sample"),
    ],
)
def test_it_is_skipped_with_a_reason(found: Situation, reason: str) -> None:
    skipped = obstacle(found)
    assert skipped is not None and reason in skipped.reason


def test_it_says_why_it_is_not_written_into_source() -> None:
    (change,) = rewrite(ScriptFacts(models=(MODEL,)), setting(2))
    assert isinstance(change, NoSourceForm)
