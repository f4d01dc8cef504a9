"""The lever that recomputes activations, on real models and loops through the real interception."""

from __future__ import annotations

import copy
import io
from typing import Any

import msgspec
import pytest
import torch
from torch import nn
from torch.nn import functional

from hotlap.levers.memory import activation_checkpointing
from hotlap.levers.memory.activation_checkpointing import candidates, obstacle, rewrite
from hotlap.levers.support.blocks import repeated_blocks
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    BlockCost,
    BlockFacts,
    ModelFacts,
    ModelStatement,
    NoSourceForm,
    PhaseAccount,
    ScriptFacts,
    Situation,
)

ALL = make_setting("activation-checkpointing", share="all")
HALF = make_setting("activation-checkpointing", share="half")
CHOSEN = make_setting("activation-checkpointing", share="chosen", blocks="1,2,3")


class Block(nn.Module):
    """A residual block with dropout that counts how often it runs."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.3))
        self.runs = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.runs += 1
        return x + self.inner(x)


class Net(nn.Module):
    def __init__(self, blocks: int = 4) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.blocks = nn.ModuleList([Block() for _ in range(blocks)])
        self.heads = nn.ModuleList([nn.Linear(16, 3) for _ in range(40)])  # layers without parts are no blocks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.heads[0](x)


def train(driver: Any, model: nn.Module, autocast: bool = False, steps: int = 3) -> tuple[list[float], dict[str, Any]]:
    torch.manual_seed(3)
    optimizer = driver.optimizer(torch.optim.AdamW, model.parameters(), lr=0.01)
    inputs, targets = torch.randn(6, 8), torch.randint(0, 3, (6,))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = functional.cross_entropy(driver.forward(model, inputs), targets)
        driver.backward(loss)
        driver.step(optimizer)
        losses.append(loss.item())
    return losses, {name: value.clone() for name, value in model.state_dict().items()}


def saved_bytes(model: nn.Module, inputs: torch.Tensor) -> int:
    """What autograd holds after a forward pass, weights left out."""
    weights = {it.data_ptr() for it in model.parameters()}
    held: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.data_ptr() not in weights:
            held[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda it: it):
        output = model(inputs)
    assert output.requires_grad
    return sum(held.values())


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("setting", [ALL, HALF, CHOSEN], ids=["all", "half", "chosen"])
def test_losses_and_weights_are_the_same_to_the_last_bit_with_dropout(driver, setting, autocast: bool) -> None:
    torch.manual_seed(0)
    plain = Net()
    changed = copy.deepcopy(plain)
    expected = train(driver, plain, autocast)
    driver.install(setting)
    found = train(driver, changed, autocast)
    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    assert all(torch.equal(found[1][name], value) for name, value in expected[1].items())
    assert [it.runs for it in plain.blocks] == [3] * 4
    recomputed = {ALL: [6] * 4, HALF: [6, 3, 6, 3], CHOSEN: [3, 6, 6, 6]}
    assert [it.runs for it in changed.blocks] == recomputed[setting]


def test_a_forward_pass_holds_less_than_a_step(driver) -> None:
    torch.manual_seed(0)
    inputs = torch.randn(64, 8)
    held = []
    for setting in (None, HALF, ALL):
        model = Net(blocks=8)
        driver.hooks.model_found.clear()
        if setting is not None:
            driver.install(setting)
        driver.forward(model, inputs)
        held.append(saved_bytes(model, inputs))
    plain, half, everything = held
    assert everything < half < plain
    assert everything < plain / 2


def test_evaluation_and_copies_are_those_of_an_ordinary_model(driver) -> None:
    driver.install(ALL)
    model = Net()
    train(driver, model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        for it in copied.parameters():
            it.zero_()
        assert not copied(torch.randn(2, 8)).any()  # the copy's blocks compute with the copy's weights
    before = [it.runs for it in model.blocks]
    with torch.no_grad():
        model(torch.randn(2, 8))
    assert [it.runs for it in model.blocks] == [it + 1 for it in before]  # type: ignore[operator]
    stored = io.BytesIO()
    torch.save(model, stored)
    assert b"hotlap" not in stored.getvalue()
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    model.eval(), loaded.eval()
    inputs = torch.randn(2, 8)
    torch.testing.assert_close(loaded(inputs), model(inputs), rtol=0, atol=0)


def test_blocks_with_batch_norm_are_left_alone(driver) -> None:
    kind = lambda: nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))  # noqa: E731
    model = nn.Sequential(kind(), kind(), nn.Linear(8, 3))
    driver.install(ALL)
    train(driver, model)
    assert model[0][1].num_batches_tracked == 3  # type: ignore[index]
    assert "batch norm would be updated twice" in driver.hooks.notes[0]


@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_a_model_of_transformers_is_switched_by_itself(driver, attention_dropout: float) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        vocab_size=50, n_positions=16, n_embd=16, n_layer=4, n_head=2, attn_pdrop=attention_dropout
    )
    runs = []
    for setting, expected in ((None, 4), (ALL, 8), (HALF, 6)):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).train()
        driver.hooks.model_found.clear()
        if setting is not None:
            driver.install(setting)
        calls: list[int] = []
        for block in model.transformer.h:
            block.ln_1.register_forward_hook(lambda *it, seen=calls: seen.append(1))
        tokens = torch.randint(0, 50, (2, 16))
        loss = driver.forward(model, input_ids=tokens, labels=tokens).loss
        driver.backward(loss)
        runs.append((loss.item(), model.transformer.wte.weight.grad.clone()))
        assert len(calls) == expected
    for loss, gradient in runs[1:]:
        assert loss == runs[0][0]
        # On a CPU, attention with dropout rounds differently where its recomputed tensors have other addresses, also
        # with transformers' own checkpointing. Another mask would change every digit.
        relative, absolute = (1e-4, 1e-7) if attention_dropout else (0.0, 0.0)
        torch.testing.assert_close(gradient, runs[0][1], rtol=relative, atol=absolute)


def test_the_largest_run_is_found_within_a_sequential() -> None:
    model = nn.Sequential(nn.Linear(8, 16), Block(), Block(), Block(), nn.Linear(16, 2))
    run = repeated_blocks(torch, model)
    assert run is not None
    assert (len(run.blocks), run.place) == (3, "[1:4]")
    assert repeated_blocks(torch, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))) is None


# -- when it applies, and how it is written ----------------------------------------------------------


def situation(**blocks: Any) -> Situation:
    facts = BlockFacts(**{"kind": "Block", "count": 4, "place": ".blocks", **blocks})
    return Situation(facts=ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, blocks=facts),)))


def test_it_is_skipped_with_a_reason() -> None:
    plain = Situation(facts=ScriptFacts(models=(ModelFacts(kind="Net", parameters=1),)))
    assert "repeated blocks" in obstacle(plain).reason
    assert obstacle(situation(recomputed=True)).already
    assert "twice" in obstacle(situation(updates_buffers=True)).reason
    assert obstacle(situation()) is None


def test_half_is_offered_where_it_can_be_done() -> None:
    assert candidates(situation()) == (ALL, HALF)
    assert candidates(situation(switch="gradient_checkpointing_enable")) == (ALL,)
    assert candidates(situation(switch="activation_checkpointing_enable", switch_skips=True)) == (ALL, HALF)
    assert activation_checkpointing.bound(situation()) is None


@pytest.mark.parametrize(
    ("blocks", "setting", "loop"),
    [
        ({}, ALL, "_.blocks"),
        ({}, HALF, "_.blocks[::2]"),
        ({"place": "[1:4]"}, HALF, "_[1:4:2]"),
        ({"place": "[:]"}, HALF, "_[::2]"),
        ({"place": '["1:4"]'}, HALF, '_["1:4"][::2]'),
    ],
)
def test_the_source_is_a_loop_over_the_blocks(blocks: dict[str, Any], setting: Any, loop: str) -> None:
    (change,) = rewrite(situation(**blocks).facts, setting)
    assert isinstance(change, ModelStatement)
    assert change.code.startswith(f"for repeated in {loop}:\n")


def test_the_source_of_a_switch_is_its_call() -> None:
    (change,) = rewrite(situation(switch="gradient_checkpointing_enable", switch_place=".bert").facts, ALL)
    assert isinstance(change, ModelStatement)
    assert change.code == '_.bert.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})'


def test_what_cannot_be_written_is_refused_with_a_reason() -> None:
    assert isinstance(rewrite(situation(place="").facts, ALL)[0], NoSourceForm)
    (wrapped,) = rewrite(situation(place=".module.blocks").facts, ALL)
    assert isinstance(wrapped, NoSourceForm) and "wrapped" in wrapped.reason
    facts = situation().facts
    two = msgspec.structs.replace(facts, models=(*facts.models, *facts.models))
    assert isinstance(rewrite(two, ALL)[0], NoSourceForm)


def measured(*bytes_of_blocks: int, slowdown: float | None = 1.1, compiled: bool = False) -> Situation:
    blocks = BlockFacts(kind="Block", count=len(bytes_of_blocks), place=".blocks")
    return Situation(
        facts=ScriptFacts(models=(ModelFacts(kind="Net", parameters=1, blocks=blocks, compiled=compiled),)),
        account=PhaseAccount(wall=1.0),
        block_costs=tuple(BlockCost(forward_seconds=0.05, saved_bytes=it) for it in bytes_of_blocks),
        most_slowdown=slowdown,
    )


def test_the_blocks_that_fit_the_allowed_slowdown_are_chosen_by_their_costs() -> None:
    (setting,) = candidates(measured(10, 40, 20, 30))
    assert dict(setting.values) == {"share": "chosen", "blocks": "1,3"}
    (change,) = rewrite(measured(10, 40).facts, setting)
    assert isinstance(change, ModelStatement)
    assert change.code.startswith("for repeated in [_.blocks[number] for number in (1,3,)]:")


def test_where_all_blocks_fit_or_nothing_was_measured_the_usual_settings_are_tried() -> None:
    usual = candidates(measured(10, 40, slowdown=None))
    assert [dict(it.values)["share"] for it in usual] == ["all", "half"]
    assert candidates(measured(10, 40, slowdown=1.5)) == usual
    assert [dict(it.values)["share"] for it in candidates(measured(10, 40, slowdown=1.01))] == ["half"]


def test_of_a_compiled_model_the_compiler_chooses() -> None:
    settings = candidates(measured(10, 40, compiled=True))
    assert [dict(it.values) for it in settings] == [
        {"share": "compiler", "memory_budget": 50},
        {"share": "compiler", "memory_budget": 20},
    ]
    (change,) = rewrite(measured(10, 40, compiled=True).facts, settings[0])
    assert isinstance(change, NoSourceForm) and "activation_memory_budget = 0.5" in change.reason
