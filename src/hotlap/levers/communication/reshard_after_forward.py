"""Keep the weights that FSDP2 gathers for forward until backward, or give them up.

## What it does
Sets `reshard_after_forward` of each module that the script passes to `fully_shard`, by
`set_reshard_after_forward`. torch's own default gives gathered weights up after forward, except those of the outermost
module, and gathers them again for backward.

## When it helps
`False` saves one of two exchanges of all weights, if memory has room for the whole model. `True` frees it again where
the script keeps it.

## What it costs
With `False` every process holds all weights between forward and backward; with `True` they are sent twice per step.

## Before
    fully_shard(block)

## After
    fully_shard(block, reshard_after_forward=False)

## What is proved
`exact`: the same weights are gathered once or twice. The losses of every process must agree to the last bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.sharded_by_script import on_units, sharded, without_sharding
from hotlap.levers.support.situations import bound_without, make_setting
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

title = "Keep the weights that FSDP2 gathers for forward until backward, or give them up"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("exposed-communication", "close-to-limit", "allocator-retries")
parameters = {"reshard": Parameter(bool)}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model of FSDP2 with units of which it is known what becomes of their weights."""
    if without_sharding(situation):
        return without_sharding(situation)
    if not any(it.api == "fsdp2" for it in sharded(situation)):
        return Skipped(reason="The script uses FSDP1, whose strategy is fixed when a model is wrapped.")
    if not candidates(situation):
        return Skipped(reason="The model is one unit, whose weights are kept until backward in any case.")
    return None


def bound(situation: Situation) -> float | None:
    """What is gathered again is gathered in the backward pass."""
    return bound_without(situation, "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """The opposite of what the script does."""
    known = {it.reshards for it in sharded(situation) if it.api == "fsdp2"} - {None}
    return tuple(make_setting("reshard-after-forward", reshard=not it) for it in sorted(map(bool, known), reverse=True))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: where the script calls ``fully_shard`` is not recorded."""
    value = dict(setting.values)["reshard"]
    return (NoSourceForm(reason=f"Pass reshard_after_forward={value} to each call of fully_shard."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set it for each unit within the model; the outermost one keeps its weights, as torch has it."""
    value = bool(dict(setting.values)["reshard"])

    def change(units: list[Any], interface: str) -> None:
        if interface != "fsdp2":
            return
        if not hasattr(units[0], "set_reshard_after_forward"):
            hooks.note("This version of torch cannot change reshard_after_forward of a model that is sharded.")
            return
        for it in units[1:]:
            it.set_reshard_after_forward(value, recurse=False)

    on_units(hooks, change)
