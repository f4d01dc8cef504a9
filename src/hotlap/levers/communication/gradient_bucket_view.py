"""Keep gradients in the buckets that are exchanged, instead of copying them.

## What it does
Sets `gradient_as_bucket_view=True` of `DistributedDataParallel`: each weight's gradient is a view into the bucket that
is exchanged, so that it need not be copied there and back.

## When it helps
Always a little, in memory: gradients exist once, not twice. The copies it avoids take a notable share of the step for
large models with little computation per weight.

## What it costs
A script that calls `detach_()` on a gradient fails, since views cannot be detached in place.

## Before
    model = DistributedDataParallel(model)

## After
    model = DistributedDataParallel(model, gradient_as_bucket_view=True)

## What is proved
`exact`: the same numbers are added, elsewhere in memory. The losses of every process must agree to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.support.data_parallel import bound_of_exchange, set_wrapper_arguments, without_exchange, wrappers
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    DataParallelArguments,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Keep gradients in the buckets that are exchanged, instead of copying them"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("exposed-communication", "close-to-limit", "allocator-retries")
parameters: dict[str, Parameter] = {}

_ARGUMENTS = {"gradient_as_bucket_view": True}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a wrapper that copies gradients."""
    if without_exchange(situation):
        return without_exchange(situation)
    if all(it.gradient_as_bucket_view for it in wrappers(situation)):
        return Skipped(reason="The script already sets gradient_as_bucket_view=True.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """Gradients are copied in the backward pass."""
    return bound_of_exchange(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("gradient-bucket-view"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set the argument where the wrapper is made."""
    return (DataParallelArguments(values=tuple(_ARGUMENTS.items())),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set the argument when a wrapper is made."""
    set_wrapper_arguments(hooks, _ARGUMENTS)
