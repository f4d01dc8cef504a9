"""Several sequences in a row: the same loss and gradients as with padding, and where it is left alone."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from hotlap.levers.api import find
from hotlap.levers.data.packed_sequences import rows_of
from hotlap.levers.support.situations import make_setting
from hotlap.records import ModelFacts, ScriptFacts, Situation

SETTING = make_setting("packed-sequences")
SMALL: dict[str, Any] = {"vocab_size": 32}
WIDE: dict[str, Any] = {**SMALL, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


def language_model(kind: str, attention: str) -> Any:
    torch.manual_seed(0)
    common: dict[str, Any] = {"attn_implementation": attention}
    quiet: dict[str, Any]
    if kind == "gpt2":
        quiet = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        config: Any = GPT2Config(**SMALL, n_positions=16, n_embd=16, n_layer=2, n_head=2, **quiet, **common)
        return GPT2LMHeadModel(config)
    if kind == "llama":
        return LlamaForCausalLM(LlamaConfig(**WIDE, intermediate_size=32, max_position_embeddings=16, **common))
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForMaskedLM(BertConfig(**WIDE, intermediate_size=32, max_position_embeddings=16, **quiet, **common))


def padded(lengths: tuple[int, ...] = (3, 12, 5, 2, 4), length: int = 12, *, left: bool = False) -> dict[str, Any]:
    draw = torch.Generator().manual_seed(1)
    words = torch.randint(1, 32, (len(lengths), length), generator=draw)
    mask = torch.arange(length)[None, :] < torch.tensor(lengths)[:, None]
    mask = mask.flip(1) if left else mask
    words = words.masked_fill(~mask, 0)
    return {"input_ids": words, "attention_mask": mask.long(), "labels": words.masked_fill(~mask, -100)}


class Rows:
    """Notes how many rows the model was called with."""

    def __init__(self, model: Any) -> None:
        self.seen: list[int] = []
        model.register_forward_pre_hook(self._note, with_kwargs=True)

    def _note(self, module: Any, args: Any, kwargs: Any) -> None:
        self.seen.append(len(kwargs["input_ids"]))


def loss_and_gradients(driver: Any, model: Any, batch: dict[str, Any]) -> tuple[float, list[Any]]:
    loss = driver.forward(model, **batch).loss
    driver.backward(loss)
    return loss.item(), [it.grad for it in model.parameters() if it.grad is not None]


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("kind", ["gpt2", "llama", "bert"])
def test_the_loss_and_every_gradient_are_the_same(driver, driver_kind, kind: str, attention: str) -> None:
    model = language_model(kind, attention)
    expected, gradients = loss_and_gradients(driver_kind(), copy.deepcopy(model), padded())
    driver.install(SETTING)
    rows = Rows(model)
    loss, packed_gradients = loss_and_gradients(driver, model, padded())
    assert rows.seen == [3], "12, 5 + 4 + 3, 2"
    assert loss == pytest.approx(expected, rel=1e-5)
    assert len(gradients) == len(packed_gradients)
    for one, other in zip(gradients, packed_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-6)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=40), st.integers(20, 50))
def test_every_sequence_is_in_one_row_that_holds_it(lengths: list[int], most: int) -> None:
    rows = rows_of(lengths, most)
    assert sorted(it for row in rows for it in row) == list(range(len(lengths)))
    assert all(sum(lengths[it] for it in row) <= most for row in rows)
    assert len(rows) <= max(1, 2 * -(-sum(lengths) // most)), "no two rows are less than half full"


def own_words(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "labels": batch["input_ids"]}


def with_positions(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "position_ids": torch.arange(12)[None].expand(5, -1)}


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (padded(left=True), "padding is not at the end"),
        (own_words(padded()), "also predicts padding"),
        (with_positions(padded()), "other tensors"),
        ({"input_ids": padded()["input_ids"]}, "not called with"),
    ],
)
def test_what_cannot_be_packed_is_left_alone_with_a_note(driver, batch: dict[str, Any], reason: str) -> None:
    model = language_model("gpt2", "sdpa")
    driver.install(SETTING)
    rows = Rows(model)
    for _ in range(2):
        driver.forward(model, **batch)
    assert rows.seen == [5, 5]
    (note,) = driver.hooks.notes
    assert reason in note


def test_a_full_batch_and_an_evaluation_stay_as_they_are(driver) -> None:
    model = language_model("gpt2", "sdpa")
    driver.install(SETTING)
    rows = Rows(model)
    driver.forward(model, **padded((12, 12, 11)))
    with torch.no_grad():
        driver.forward(model, **padded())
    assert rows.seen == [3, 5] and not driver.hooks.notes


def situation(**changes: Any) -> Situation:
    usual: dict[str, Any] = {"kind": "GPT2LMHeadModel", "parameters": 10, "attention": "sdpa"}
    return Situation(facts=ScriptFacts(models=(ModelFacts(**{**usual, **changes}),)))


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (situation(), None),
        (situation(kind="BertForMaskedLM", attention="eager"), None),
        (situation(kind="Net"), "No language model"),
        (situation(compiled=True), "compiled"),
        (situation(attention="flash_attention_2"), "takes no such mask"),
    ],
)
def test_it_is_tried_for_language_models_that_take_such_a_mask(where: Situation, reason: str | None) -> None:
    lever = find("packed-sequences")
    refused = lever.obstacle(where)
    assert (refused is None) if reason is None else (refused is not None and reason in refused.reason)
    assert lever.proof == "behaviour"
