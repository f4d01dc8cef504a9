"""Shard weights, gradients and optimizer state over the processes (FSDP2 in place of DDP).

## What it does
Applies torch's `fully_shard` where the script wraps its model in `DistributedDataParallel`: to each of the model's
repeated blocks and to the rest. Every process holds one Nth of the weights, gradients and optimizer state, and the
weights of a block are gathered for as long as it computes. `reshard_after_forward=False` keeps them between forward and
backward. For the script the wrapper stays what it was: `.module`, `no_sync()`, schedulers, clipping. `state_dict()` of
model and optimizer returns whole tensors on whichever process calls it, also on the first one alone, and loads them;
forward passes without gradients use whole weights that are fetched from the other processes once per update, so that
one process alone may evaluate.

## When it helps
When weights, gradients and optimizer state fill the memory. It is tried when the goal is memory
(`hotlap tune --goal memory`), and for speed where a prediction for this script does not rule out shorter steps:
updating one Nth of the weights takes less time, and gradients are exchanged in half as many messages.

## What it costs
Weights are sent twice per step (once with `reshard_after_forward=False`), and gradients once. An evaluation after an
update fetches all weights, through the host's memory, and holds them until the next update. Weights and gradients are
`DTensor`s: a script that computes with them itself may fail. A process that has finished waits for the others to
finish. A model stays whole if several blocks have weights in common, or if its optimizer is made before it is wrapped.

## Before
    model = DistributedDataParallel(model)

## After
    for block in model.layers:
        fully_shard(block)
    fully_shard(model)

## What is proved
`rounding`: gradients are averaged in another order. The losses of every process, and the whole gradients, are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter
from hotlap.levers.support.data_parallel import share_of_others, too_little_saved, without_exchange, wrappers
from hotlap.levers.support.situations import bound_without, device_kind, make_setting, without_model
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
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

title = "Shard weights, gradients and optimizer state over the processes (FSDP2 in place of DDP)"
proof: Proof = "rounding"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("close-to-limit", "allocator-retries")
parameters = {"reshard_after_forward": Parameter(bool)}

_DEVICES = ("cpu", "cuda")
_MOST_THAT_EVALUATE = 8


def obstacle(situation: Situation) -> Skipped | None:
    """Require one wrapper over all processes, and a script that does nothing that sharded weights rule out."""
    if without_exchange(situation):
        return without_exchange(situation)
    if without_model(situation):
        return without_model(situation)
    reason = _reason_against(situation)
    if reason or any(it.state_bytes is None for it in situation.facts.optimizers):
        return Skipped(reason=reason) if reason else None
    return too_little_saved(situation, _saved_bytes(situation))


def bound(situation: Situation) -> float | None:
    """Nothing is exchanged in the backward pass, and each process updates one Nth of the weights."""
    processes = max(1, situation.facts.processes)
    rest = situation.account.seconds_in("optimizer") / processes
    without = bound_without(situation, "backward", "optimizer")
    return None if without is None else situation.account.wall / (situation.account.wall / without + rest)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """What needs least memory first."""
    return tuple(make_setting("fully-sharded", reshard_after_forward=it) for it in (True, False))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: saving and evaluating has to be written differently."""
    reason = "With fully_shard the script must save and evaluate on all processes, by torch.distributed.checkpoint."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Shard each model when the script wraps it."""
    from hotlap.levers.support.sharded_models import shard_models

    shard_models(hooks, reshard_after_forward=bool(dict(setting.values)["reshard_after_forward"]))


def _saved_bytes(situation: Situation) -> int:
    """Weights, gradients and state of the others, and DDP's second copy of the gradients; what is gathered while it is
    computed comes on top again and is left out."""
    (wrapper,), (model,) = wrappers(situation), situation.facts.models
    state = sum(it.state_bytes or 0 for it in situation.facts.optimizers)
    copied = 0 if wrapper.gradient_as_bucket_view else wrapper.gradient_bytes
    return copied + share_of_others(situation, model.parameter_bytes + wrapper.gradient_bytes + state)


def _reason_against(situation: Situation) -> str:
    facts = situation.facts
    if len(facts.data_parallel) != 1 or len(facts.models) != 1:
        return "Several models train, and which of them evaluates another is unknown."
    (wrapper,) = wrappers(situation)
    if wrapper.processes < facts.processes:
        return "The DistributedDataParallel spans only some of the processes."
    if device_kind(situation) not in _DEVICES:
        return f"Sharding is not supported on {device_kind(situation)}."
    if wrapper.communication_hook:
        return f"The script registers {wrapper.communication_hook} to exchange its gradients."
    if wrapper.find_unused_parameters:
        return "The script lets processes leave out weights in a step, which sharded ones cannot."
    if facts.grad_scaler:
        return "A GradScaler inspects whole gradients on each process."
    if facts.models[0].compiled:
        return "The script compiles its model, which is wrapped in another way when it is sharded."
    if any(not it.from_torch for it in facts.optimizers):
        return "An optimizer that is not torch's own may not compute with sharded weights."
    if facts.evaluation is not None and wrapper.processes > _MOST_THAT_EVALUATE:
        return f"Each of {wrapper.processes} processes would fetch all weights for itself to evaluate."
    return ""
