"""Several micro-batches in one pass: each step, from loss to scheduler, is that of the script's own micro-batches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset, TensorDataset

from hotlap.levers.memory.larger_micro_batches import candidates, obstacle, rewrite
from hotlap.levers.support.situations import make_setting
from hotlap.records import LoaderFacts, ModelFacts, NoSourceForm, OptimizerFacts, ScriptFacts, Situation

IGNORED = -100


def setting(micro_batches: int, merged: int) -> Any:
    return make_setting("larger-micro-batches", micro_batches=micro_batches, merged=merged)


class Tagger(nn.Module):
    """A class for each token; records how many samples each forward pass gets."""

    def __init__(self, width: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 2 * width), nn.Tanh(), nn.Linear(2 * width, classes))
        self.seen: list[int] = []

    def forward(self, x: torch.Tensor, flag: bool = False) -> torch.Tensor:
        self.seen.append(len(x))
        return self.layers(x)


def same(inputs: torch.Tensor, number: int) -> torch.Tensor:
    return inputs


class Loop:
    """A training loop that accumulates, with everything that may come between loss and step, with or without the lever.

    ``change`` is what the script does to its inputs, and ``skips`` the micro-batches without a backward pass.
    """

    def __init__(
        self,
        driver: Any,
        model: Any,
        data: Dataset[Any],
        *,
        each: int,
        batch: int = 2,
        clip: float | None = None,
        scaled: bool = False,
        steps_at_end: bool = False,
        change: Callable[[torch.Tensor, int], torch.Tensor] = same,
        skips: frozenset[int] = frozenset(),
    ) -> None:
        self.driver, self.model, self.each, self.clip = driver, model, each, clip
        self.steps_at_end, self.change, self.skips = steps_at_end, change, skips
        self.loader = driver.loader(data, batch_size=batch)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaled, init_scale=1024.0)
        self.losses: list[float] = []
        self.history: list[tuple[float, float]] = []
        self.done = 0

    def epoch(self) -> None:
        for number, (inputs, targets) in enumerate(self.driver.batches(self.loader), start=1):
            self.done += 1
            output = self.driver.forward(self.model, self.change(inputs, self.done))
            loss = functional.cross_entropy(output.flatten(0, 1), targets.flatten(), ignore_index=IGNORED) / self.each
            self.losses.append(loss.item())
            if self.done not in self.skips:
                self.driver.backward(self.scaler.scale(loss))
            if number % self.each == 0 or (self.steps_at_end and number == len(self.loader)):
                self.update()

    def update(self) -> None:
        self.scaler.unscale_(self.optimizer)
        norm = 0.0
        if self.clip is not None:
            norm = float(self.driver.clip(self.model.parameters(), self.clip))
        self.driver.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        self.optimizer.zero_grad()
        self.history.append((norm, float(self.schedule.get_last_lr()[0])))


def tokens(samples: int, length: int = 3, width: int = 4, ignored: float = 0.3) -> TensorDataset:
    targets = torch.randint(0, 3, (samples, length))
    targets[torch.rand(samples, length) < ignored] = IGNORED
    targets[:, 0] = 1  # a mean over no token at all is not a number
    return TensorDataset(torch.randn(samples, length, width).double(), targets)


def loops(driver_kind: Any, data: Dataset[Any], *, merged: int, each: int, **choices: Any) -> tuple[Loop, Loop]:
    """The loop without and with the lever, from the same weights."""
    plain = Tagger(data[0][0].shape[-1]).double()
    made = driver_kind()
    made.install(setting(each, merged))
    return tuple(
        Loop(driver, model, data, each=each, **choices)
        for driver, model in ((driver_kind(), plain), (made, copy.deepcopy(plain)))
    )  # type: ignore[return-value]


def train(pair: tuple[Loop, Loop], epochs: int = 3) -> None:
    for loop in pair:
        for _ in range(epochs):
            loop.epoch()


def assert_the_same(pair: tuple[Loop, Loop]) -> None:
    plain, changed = pair
    assert changed.losses == pytest.approx(plain.losses, rel=1e-9)
    for found, expected in zip(changed.history, plain.history, strict=True):
        assert found == pytest.approx(expected, rel=1e-9)
    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(changed.model.state_dict()[name], value, rtol=1e-6, atol=1e-9)
    assert "forward" not in vars(changed.model)


@settings(max_examples=40, deadline=None)
@given(
    samples=st.integers(1, 40),
    batch=st.integers(1, 4),
    each=st.integers(2, 5),
    merged=st.integers(2, 5),
    length=st.integers(1, 4),
    width=st.integers(1, 6),
    ignored=st.floats(0, 0.9),
    clip=st.none() | st.floats(0.01, 1.0),
    scaled=st.booleans(),
    steps_at_end=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_every_step_is_that_of_the_own_micro_batches(
    driver_kind, samples, batch, each, merged, length, width, ignored, clip, scaled, steps_at_end, seed
) -> None:
    torch.manual_seed(seed)
    data = tokens(samples, length, width, ignored)
    choices = {"batch": batch, "clip": clip, "scaled": scaled, "steps_at_end": steps_at_end}
    pair = loops(driver_kind, data, merged=min(merged, each), each=each, **choices)
    train(pair)
    assert_the_same(pair)
    assert not pair[1].driver.hooks.notes
    batches = -(-samples // batch)
    assert sum(pair[1].model.seen) == 3 * samples == sum(pair[0].model.seen)
    if batches >= 2 * each:  # from the second step on
        assert max(pair[1].model.seen) >= 2 * batch - (batch - 1)
        assert len(pair[1].model.seen) < len(pair[0].model.seen)


def test_as_many_are_computed_together_as_are_asked_for(driver_kind) -> None:
    pair = loops(driver_kind, tokens(32), merged=4, each=8)
    train(pair, epochs=2)
    assert pair[1].model.seen == [2] * 8 + [8] * 2 + [8] * 4
    assert_the_same(pair)


def test_inputs_that_are_not_those_of_the_loader_are_computed_one_by_one(driver_kind) -> None:
    pair = loops(driver_kind, tokens(32), merged=4, each=4, change=lambda inputs, number: inputs * 2)
    train(pair)
    assert_the_same(pair)
    assert set(pair[1].model.seen) == {2} and "not those of the loader" in pair[1].driver.hooks.notes[0]


@pytest.mark.parametrize("changed", [17, 18, 20, 24])
def test_inputs_that_change_later_cost_nothing_but_the_speed(driver_kind, changed: int) -> None:
    pair = loops(
        driver_kind, tokens(32), merged=4, each=4, clip=0.1, scaled=True,
        change=lambda inputs, number: inputs * 2 if number == changed else inputs,
    )  # fmt: skip
    train(pair)
    assert_the_same(pair)
    assert max(pair[1].model.seen) == 8


@pytest.mark.parametrize("skipped", [17, 18, 19])
def test_a_micro_batch_without_a_backward_pass_counts_for_nothing(driver_kind, skipped: int) -> None:
    pair = loops(driver_kind, tokens(32), merged=4, each=4, clip=0.1, scaled=True, skips=frozenset({skipped}))
    train(pair)
    assert_the_same(pair)


def test_a_last_micro_batch_without_a_backward_pass_ends_the_run(driver_kind) -> None:
    _, loop = loops(driver_kind, tokens(32), merged=4, each=4, skips=frozenset({8}))
    with pytest.raises(RuntimeError, match="last micro-batch had no backward pass"):
        loop.epoch()


def test_lengths_that_differ_are_computed_one_by_one(driver_kind) -> None:
    class Texts(Dataset[Any]):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            length = 1 + index // 2 % 3
            return torch.full((length, 4), float(index)).double(), torch.ones(length, dtype=torch.long)

    pair = loops(driver_kind, Texts(), merged=4, each=4)
    train(pair)
    assert_the_same(pair)


def test_an_update_that_comes_too_early_ends_the_run(driver_kind) -> None:
    _, loop = loops(driver_kind, tokens(32), merged=4, each=4)
    loop.epoch()
    with pytest.raises(RuntimeError, match="an update came early"):
        for number, (inputs, targets) in enumerate(loop.driver.batches(loop.loader), start=1):
            output = loop.driver.forward(loop.model, inputs)
            loop.driver.backward(functional.cross_entropy(output.flatten(0, 1), targets.flatten()))
            if number == 2:
                loop.update()


def test_a_backward_pass_that_comes_too_late_ends_the_run(driver_kind) -> None:
    _, loop = loops(driver_kind, tokens(32), merged=4, each=4)
    loop.epoch()
    outputs = []
    for inputs, _ in loop.driver.batches(loop.loader):
        outputs.append(loop.driver.forward(loop.model, inputs))
        if len(outputs) == 2:
            break
    with pytest.raises(RuntimeError, match="came after its micro-batch was given up"):
        loop.driver.backward(outputs[0].sum())


def test_an_error_of_the_data_set_is_raised_when_its_batch_is_fetched(driver_kind) -> None:
    class Broken(Dataset[Any]):
        def __len__(self) -> int:
            return 32

        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index == 21:
                raise ValueError("no such sample")
            return torch.full((1, 4), float(index)).double(), torch.ones(1, dtype=torch.long)

    pair = loops(driver_kind, Broken(), merged=4, each=4)
    for loop in pair:
        with pytest.raises(ValueError, match="no such sample"):
            loop.epoch()
    assert (pair[0].done, pair[1].done) == (10, 8), "it is the third of a pass of four"
    assert pair[1].losses == pytest.approx(pair[0].losses[:8], rel=1e-9)


def test_an_evaluation_reads_its_own_batches(driver_kind) -> None:
    pair = loops(driver_kind, tokens(32), merged=4, each=4)
    for loop in pair:
        for _ in range(2):
            loop.epoch()
            loop.model.eval()
            with torch.no_grad():
                loop.losses += [
                    loop.driver.forward(loop.model, inputs).sum().item()
                    for inputs, _ in loop.driver.batches(loop.loader)
                ]
            loop.model.train()
    assert_the_same(pair)
    assert pair[1].model.seen.count(2) == 4 + 2 * 16


class OwnLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(self.layer(x)).square().mean()


def test_a_model_with_its_own_loss_gets_its_own_micro_batches_and_random_numbers(driver_kind) -> None:
    plain, data, found = OwnLoss(), tokens(32), []
    made = driver_kind()
    made.install(setting(4, 4))
    for driver, model in ((driver_kind(), plain), (made, copy.deepcopy(plain))):
        torch.manual_seed(5)
        optimizer, losses = torch.optim.SGD(model.parameters(), 0.1), []
        loader = driver.loader(data, batch_size=2)
        for number, (inputs, _) in enumerate(driver.batches(loader), start=1):
            loss = driver.forward(model, inputs)
            driver.backward(loss)
            losses.append(loss.item())
            if number % 4 == 0:
                driver.step(optimizer)
        found.append(losses)
    assert found[0] == found[1]
    assert "one entry per sample" in made.hooks.notes[0]


# -- when it applies ---------------------------------------------------------------------------------

MODEL = ModelFacts(kind="Net", parameters=1, input_shapes=((8, 4),), outputs_by_sample=True)
FACTS = ScriptFacts(
    models=(MODEL,),
    optimizers=(OptimizerFacts(kind="SGD", parameters=1, learning_rate=0.1),),
    loaders=(LoaderFacts(dataset="Rows", batch_size=8),),
    backwards_per_step=4.0,
)


def situation(**changes: Any) -> Situation:
    return Situation(facts=msgspec.structs.replace(FACTS, **changes))


def test_it_applies_where_a_script_accumulates() -> None:
    assert obstacle(situation()) is None
    assert candidates(situation()) == (setting(4, 4), setting(4, 2))
    assert candidates(situation(backwards_per_step=2.97)) == (setting(3, 3),)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"models": ()}, "No model"),
        ({"backwards_per_step": 1.0}, "accumulates no gradients"),
        ({"backwards_per_step": 2.5}, "changes"),
        ({"models": (MODEL, MODEL)}, "Several models"),
        ({"processes": 2}, "Several processes"),
        ({"loaders": ()}, "do not come from one DataLoader"),
        ({"models": (msgspec.structs.replace(MODEL, batch_norms=1),)}, "batch norm"),
        ({"models": (msgspec.structs.replace(MODEL, compiled=True),)}, "compiles"),
        ({"models": (msgspec.structs.replace(MODEL, outputs_by_sample=False),)}, "own loss"),
    ],
)
def test_it_is_skipped_with_a_reason(changes: dict[str, Any], reason: str) -> None:
    skipped = obstacle(situation(**changes))
    assert skipped is not None and reason in skipped.reason


def test_it_says_what_to_change_in_the_source() -> None:
    (change,) = rewrite(FACTS, setting(8, 4))
    assert isinstance(change, NoSourceForm) and "4 times as large" in change.reason
