"""Several short sequences share a row of a batch, which is padding otherwise.

## What it does
Before each training forward of a Hugging Face language model, puts the sequences of the batch into as few rows as hold
them (longest first), without their padding. A mask keeps each from attending to the others, positions stay those that
each token had, and no token is predicted from another sequence. The same tokens are predicted as before, so that the
mean loss is the same but for rounding.

## When it helps
When sequences of different lengths are padded to the longest one, or to a fixed length: with half of a batch padding, a
step computes half as much.

## What it costs
A mask of the square of the row's length for each row, which fused attention kernels without masks cannot use. Lengths
are read on the host, which waits for a device. The model's `logits` have other rows than the batch: a script that
reads them may fail. Dropout draws other random numbers, and a loss of its own in the model (of a mixture of experts)
counts other rows.

## Before
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    loss = model(**batch, labels=labels).loss

## After
    collate = DataCollatorWithFlattening()  # of transformers: one row, and positions that begin again
    loss = model(**collate(samples)).loss

## What is proved
`behaviour`: over paired seeds the loss must change by less than another seed changes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import make_setting, without_model
from hotlap.levers.support.switching import Switch, gated
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Several sequences in one row"
proof: Proof = "behaviour"
addresses = ("padded-batches",)
parameters: dict[str, Parameter] = {}

_CAUSAL = ("ForCausalLM", "LMHeadModel")
_MASKED = ("ForMaskedLM",)
_ATTENTION = ("eager", "sdpa")
_IGNORED = -100
"""The label that torch's cross entropy, and so the loss of every model of transformers, leaves out."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require a language model of transformers whose attention takes a mask for each pair of tokens."""
    if without_model(situation):
        return without_model(situation)
    models = [it for it in situation.facts.models if it.kind.endswith((*_CAUSAL, *_MASKED))]
    if not models:
        return Skipped(reason="No language model of Hugging Face transformers was seen.")
    if any(it.compiled for it in models):
        return Skipped(reason="The model is compiled, and would be again for each number of rows.")
    if any(it.attention not in _ATTENTION for it in models):
        return Skipped(reason=f"The model's attention is {models[0].attention or 'unknown'}, which takes no such mask.")
    return None


def bound(situation: Situation) -> float | None:
    """How much of the batches is padding is not known before."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("packed-sequences"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Batches are made in too many ways to be edited."""
    return (NoSourceForm(reason="Use a collator that packs, such as transformers' `DataCollatorWithFlattening`."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Replace the arguments of each training forward of a language model."""
    packer = _Packer(hooks)
    hooks.before_forward.append(packer.before_forward)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Batches are packed only in steps for which it is on."""
    return gated(hooks, lambda behind_gate: install(behind_gate, setting))


def rows_of(lengths: Sequence[int], most: int) -> list[list[int]]:
    """Which sequences share a row of at most so many tokens: longest first, each into the first row that has room."""
    rows: list[list[int]] = []
    room: list[int] = []
    for sequence in sorted(range(len(lengths)), key=lambda it: -lengths[it]):
        row = next((it for it, left in enumerate(room) if left >= lengths[sequence]), None)
        if row is None:
            rows.append([])
            room.append(most)
            row = len(rows) - 1
        rows[row].append(sequence)
        room[row] -= lengths[sequence]
    return rows


class _Packer:
    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks
        self._torch = hooks.torch
        self._noted = False

    def before_forward(
        self, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        kind = type(root).__name__
        if not kind.endswith((*_CAUSAL, *_MASKED)):
            return args, kwargs
        causal = kind.endswith(_CAUSAL)
        reason = self._why_not(args, kwargs, causal)
        if reason:
            self._note(reason)
            return args, kwargs
        return args, self._packed(root, kwargs, causal)

    def _note(self, reason: str) -> None:
        if not self._noted:
            self._hooks.note(f"Sequences were not packed: {reason}.")
        self._noted = True

    def _why_not(self, args: tuple[Any, ...], kwargs: dict[str, Any], causal: bool) -> str:
        words, mask, labels = (kwargs.get(it) for it in ("input_ids", "attention_mask", "labels"))
        tensor = self._torch.Tensor
        if args or not all(isinstance(it, tensor) and it.dim() == 2 for it in (words, mask, labels)):
            return "the model is not called with `input_ids`, `attention_mask` and `labels` by name"
        assert words is not None and mask is not None and labels is not None
        others = [it for it in kwargs.values() if isinstance(it, tensor) and it.dim() and it.shape != words.shape]
        if "position_ids" in kwargs or others:
            return "the model gets other tensors besides its words, or positions"
        here = mask.bool()
        right_padded = here.long().cumprod(1).sum(1) == here.sum(1)
        if not bool((right_padded & here.any(1)).all()):
            return "padding is not at the end of each sequence"
        if not bool((labels[~here] == _IGNORED).all()):
            return "the script also predicts padding"
        return ""

    def _packed(self, root: Any, kwargs: dict[str, Any], causal: bool) -> dict[str, Any]:
        torch = self._torch
        words, here = kwargs["input_ids"], kwargs["attention_mask"].bool()
        length = words.shape[1]
        lengths = here.sum(1).tolist()
        rows = rows_of(lengths, length)
        if len(rows) == len(lengths):
            return kwargs
        places = torch.full((len(rows), length), -1, dtype=torch.long)
        for row, sequences in enumerate(rows):
            begin = 0
            for it in sequences:
                places[row, begin : begin + lengths[it]] = torch.arange(it * length, it * length + lengths[it])
                begin += lengths[it]
        places = places.to(words.device)
        used = places >= 0
        index = places.clamp(min=0)
        packed = {
            name: it.reshape(-1)[index] if isinstance(it, torch.Tensor) and it.shape == words.shape else it
            for name, it in kwargs.items()
        }
        positions, sequence = index % length, torch.where(used, index // length, -1)
        left_out = ~used | (positions == 0) if causal else ~used
        packed["labels"] = packed["labels"].masked_fill(left_out, _IGNORED)
        packed["position_ids"] = positions
        packed["attention_mask"] = self._mask(root, sequence, causal)
        return packed

    def _mask(self, root: Any, sequence: Any, causal: bool) -> Any:
        """Which pairs of tokens attend to one another; padding attends to padding, since no row may be empty."""
        torch = self._torch
        allowed = sequence[:, None, :, None] == sequence[:, None, None, :]
        if causal:
            allowed = allowed.tril()
        if getattr(root.config, "_attn_implementation", "") == "sdpa":
            return allowed
        dtype = next(root.parameters()).dtype
        return torch.zeros(allowed.shape, dtype=dtype, device=allowed.device).masked_fill(
            ~allowed, torch.finfo(dtype).min
        )
