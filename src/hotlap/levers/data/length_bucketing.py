"""Sequences of similar length share a batch, which is padded only to its longest one.

## What it does
Sorts all sequences by their length, cuts them into batches, and pads each batch to its longest sequence, rounded up to
`multiple`. With `order="sorted"` a batch has as many sequences as before; with `order="filled"` it has at most as many
positions, padding included, as the largest one had before, so that short sequences share larger batches and take fewer
calls. `order="bucketed"` puts only sequences into a batch that round up to the same length; `order="given"` leaves the
batches as they are and only cuts off padding that no sequence of a batch needs. Outputs are returned in the original
order. `hotlap infer --lengths` tries it and times whole passes over all inputs.

## When it helps
If inputs are padded to a fixed length, or short and long sequences share batches. Where many texts wait, as in an index
that is built or a queue with dynamic batching, they can be sorted; where each request is answered alone they cannot.

## What it costs
A sequence waits for its batch. Shapes differ from batch to batch: a compiler needs dynamic shapes, or few buckets.

## Before
    batches = [texts[i : i + 32] for i in range(0, len(texts), 32)]
    outputs = [model(**tokenizer(batch, padding="max_length", return_tensors="pt")) for batch in batches]

## After
    order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
    for start in range(0, len(order), 32):  # "filled": as many as fit into 32 times the longest length
        chosen = order[start : start + 32]
        batch = tokenizer([texts[i] for i in chosen], padding="longest", pad_to_multiple_of=8, return_tensors="pt")
        for i, output in zip(chosen, model(**batch)):
            outputs[i] = output

## What is proved
`rounding`: padding does not take part in masked attention, but sums of other lengths round differently. Outputs are
compared with those of the inputs' own batches, without the positions that are padding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import Batching, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Batches of sequences of similar length"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
parameters = {
    "order": Parameter(str, choices=("filled", "sorted", "bucketed", "given")),
    "multiple": Parameter(int, minimum=1, maximum=4096),
}


def obstacle(situation: Situation) -> Skipped | None:
    """Require sequences with padding, and a whole pass as the unit of work."""
    if without_model(situation):
        return without_model(situation)
    lengths = situation.facts.lengths
    if lengths is None:
        return Skipped(reason="The inputs have no attention mask that shows which positions are padding.")
    if not lengths.whole_passes:
        return Skipped(reason="Only `hotlap infer --lengths` tries it, which times whole passes over all inputs.")
    if not candidates(situation):
        return Skipped(reason="No other batches of the same sequences need less padding.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """The work of attention grows with the square of the length, so that positions bound nothing."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Those that leave the model fewer positions to compute."""
    lengths = situation.facts.lengths
    if lengths is None:
        return ()
    own, *others = lengths.paddings
    fewer = (it.batching for it in others if it.positions < own.positions)
    return tuple(make_setting("length-bucketing", order=it.order, multiple=it.multiple) for it in fewer)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Batches are formed by the user's own code."""
    return (NoSourceForm(reason="Form batches where you tokenize, as `hotlap levers length-bucketing` shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set how the program forms its batches."""
    values = dict(setting.values)
    hooks.batching = Batching(order=values["order"], multiple=int(values["multiple"]))  # type: ignore[arg-type]
