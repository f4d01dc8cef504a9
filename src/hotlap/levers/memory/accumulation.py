"""Compute each batch in micro-batches, with the gradients of the whole batch.

## What it does
Runs the model's training forward pass on one micro-batch after another, each under `torch.utils.checkpoint`, and
returns the outputs of the whole batch to the script. The script computes its own loss from them, once: a mean over
tokens with `ignore_index`, class weights and a short last batch keep their weights. The backward pass recomputes one
micro-batch at a time, so that only the activations of one are in memory, and accumulates their gradients. Clipping,
loss scaling, the optimizer, schedulers and logging see one batch, one loss and one backward pass per step, as before.

## When it helps
If a batch's activations fill the memory. The script's batch, and what is learned from it, does not change. It is tried
if the goal is memory (`hotlap tune --goal memory`).

## What it costs
A second forward pass in each step, and smaller operations, which use a CPU or device less efficiently. The outputs and
the loss still take the memory of the whole batch: a language model's logits may be the larger part. Dropout draws other
random numbers, from the same distribution. Batch norm computes statistics over the batch, so a model with batch norm is
not changed, nor is a model that computes its loss itself, since the weight of each micro-batch is then unknown. The
comparison of numbers detects other layers that mix samples.

## Before
    output = model(inputs)
    loss = criterion(output, targets)

## After
    parts = inputs.chunk(4)
    output = torch.cat([checkpoint(model, part, use_reentrant=False) for part in parts])
    loss = criterion(output, targets)

## What is proved
`rounding`: sums over the batch are added up in another order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.micro_batches import CannotSplit, is_by_sample, joined, part_of, random_states, samples_in
from hotlap.levers.support.situations import make_setting, without_model
from hotlap.records import (
    PEAK_BYTES,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Compute each batch in micro-batches, with the gradients of the whole batch"
proof: Proof = "rounding"
improves = (PEAK_BYTES,)
addresses = ("close-to-limit", "allocator-retries")
parameters = {"micro_batches": Parameter(int, minimum=2)}

_TRIED = (4, 2)
_INSTEAD = "forward"


def obstacle(situation: Situation) -> Skipped | None:
    """Require one model that treats each sample independently, in one process."""
    facts = situation.facts
    if without_model(situation):
        return without_model(situation)
    if len(facts.models) > 1:
        return Skipped(reason="Several models train, and outputs of one may be compared across samples by another.")
    if facts.processes > 1:
        return Skipped(reason="Several processes train: their wrapper of the model takes one forward pass per step.")
    (model,) = facts.models
    if model.batch_norms:
        return Skipped(reason=f"{model.kind} has batch norm, whose statistics would be those of micro-batches.")
    if model.compiled:
        return Skipped(reason="The script compiles its model for the whole batch.")
    if not model.outputs_by_sample:
        reason = "has outputs without one entry per sample (such as its own loss): how to weight them is unknown."
        return Skipped(reason=f"{model.kind} {reason}")
    return None if candidates(situation) else Skipped(reason="A batch has one sample only.")


def bound(situation: Situation) -> float | None:
    """It does not make steps faster."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try four and two micro-batches, if the batch has enough samples."""
    samples = min((it[0] for model in situation.facts.models for it in model.input_shapes if it), default=0)
    return tuple(make_setting("accumulation", micro_batches=it) for it in _TRIED if it <= samples)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Which tensors hold samples is known only at run time, not from the source."""
    reason = "Which arguments and outputs of the model hold one entry per sample is known only while it runs."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """A root's own ``forward`` is replaced from before its training forward to after it, so that neither evaluation nor
    a copy or a pickle of the model knows of it."""
    parts = int(dict(setting.values)["micro_batches"])
    refused: set[int] = set()

    def refuse(root: Any, reason: str) -> None:
        refused.add(id(root))
        hooks.note(f"{type(root).__name__} is given whole batches: {reason}.")

    def before_forward(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if id(root) in refused or isinstance(vars(root).get(_INSTEAD), _InParts):
            return args, kwargs
        reason = _reason_against(hooks.torch, root, args, kwargs)
        if reason:
            refuse(root, reason)
        else:
            own = vars(root).get(_INSTEAD)
            root.forward = _InParts(hooks.torch, root.forward, own, parts, functools.partial(refuse, root))
        return args, kwargs

    def after_forward(root: Any, output: Any) -> None:
        standing = vars(root).get(_INSTEAD)
        if isinstance(standing, _InParts):
            if standing.own is None:
                del root.forward
            else:
                root.forward = standing.own

    hooks.before_forward.append(before_forward)
    hooks.after_forward.append(after_forward)


class _InParts:
    """A model's forward pass in micro-batches; ``own`` is what stood in its place on the instance, if anything did."""

    def __init__(
        self, torch: Any, forward: Callable[..., Any], own: Any, parts: int, refuse: Callable[[str], None]
    ) -> None:
        self._torch = torch
        self._forward = forward
        self._parts = parts
        self._refuse = refuse
        self.own = own

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from torch.utils.checkpoint import checkpoint

        torch = self._torch
        samples = samples_in(torch, (args, kwargs))
        rows = -(-samples // self._parts)
        if samples < 2:
            return self._forward(*args, **kwargs)
        states = random_states(torch, (args, kwargs))
        outputs = []
        for start in range(0, samples, rows):
            end = min(start + rows, samples)
            own_args, own_kwargs = part_of(torch, (args, kwargs), samples, start, end)
            run = functools.partial(self._forward, **own_kwargs)
            output = checkpoint(run, *own_args, use_reentrant=False)
            if not is_by_sample(torch, output, end - start):
                for restore, state in states:
                    restore(state)
                self._refuse("its outputs do not have one entry per sample")
                return self._forward(*args, **kwargs)
            outputs.append(output)
        return joined(torch, outputs)


def _reason_against(torch: Any, root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Return why this model cannot be given micro-batches; empty if it can."""
    norms = torch.nn.modules.batchnorm._BatchNorm
    if any(isinstance(it, norms) and it.training for it in root.modules()):
        return "batch norm would compute its statistics over micro-batches"
    if getattr(root, "_compiled_call_impl", None) is not None or hasattr(root, "_orig_mod"):
        return "it is compiled for them"
    if isinstance(root, torch.nn.parallel.DistributedDataParallel):
        return "its wrapper for several processes takes one forward pass per step"
    try:
        return "" if samples_in(torch, (args, kwargs)) else "its inputs are not tensors"
    except CannotSplit as error:
        return str(error)
