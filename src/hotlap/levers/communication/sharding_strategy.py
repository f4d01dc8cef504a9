"""Divide less between processes with FSDP1, or more.

## What it does
Sets `sharding_strategy` of each `FullyShardedDataParallel`. `SHARD_GRAD_OP` keeps the weights that forward gathered
until backward is done; `NO_SHARD` holds the whole model on every process, as `DistributedDataParallel` does;
`FULL_SHARD` gives gathered weights up after forward.

## When it helps
`SHARD_GRAD_OP` saves one of two exchanges of all weights, and `NO_SHARD` both, if memory has room for the whole model.
`FULL_SHARD` frees that memory where the script keeps it.

## What it costs
With `SHARD_GRAD_OP` every process holds all weights between forward and backward, with `NO_SHARD` gradients and the
optimizer's state as well. Whole state dictionaries (`StateDictType.FULL_STATE_DICT`) load with each strategy. A script
that saves sharded ones cannot do so with `NO_SHARD`, which torch refuses with an error.

## Before
    model = FullyShardedDataParallel(model, use_orig_params=True)

## After
    model = FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True)

## What is proved
`exact` for `SHARD_GRAD_OP` and `FULL_SHARD`, which differ in when weights are gathered; `rounding` for `NO_SHARD`,
where gradients are added up in another order. The losses of every process are compared, and the whole gradients where
the script sets `use_orig_params=True`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.sharded_by_script import missing_of_others, sharded, without_room, without_sharding
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

title = "Divide less between processes with FSDP1, or more"
proof: Proof = "exact"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("exposed-communication", "close-to-limit", "allocator-retries")

_KNOWN = ("SHARD_GRAD_OP", "NO_SHARD", "FULL_SHARD")

parameters = {"strategy": Parameter(str, choices=_KNOWN)}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model of FSDP1 whose strategy is one of the three for all of it."""
    if without_sharding(situation):
        return without_sharding(situation)
    models = [it for it in sharded(situation) if it.api == "fsdp1"]
    if not models:
        return Skipped(reason="The script uses FSDP2, whose options other levers change.")
    if any(it.strategy not in _KNOWN for it in models):
        return Skipped(reason="The script uses a hybrid strategy, with the model divided within each node.")
    if any(it.offloads for it in models):
        return Skipped(reason="The script keeps the weights in host memory (cpu_offload).")
    if not candidates(situation):
        return without_room(situation, missing_of_others(situation))
    return None


def bound(situation: Situation) -> float | None:
    """Weights are gathered in forward and backward, and gradients exchanged in backward."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Those that the script does not use; the whole model only where memory has room for it."""
    used = {it.strategy for it in sharded(situation) if it.api == "fsdp1"}
    fits = without_room(situation, missing_of_others(situation)) is None
    return tuple(
        make_setting("sharding-strategy", strategy=it)
        for it in _KNOWN
        if used and it not in used and (fits or it != "NO_SHARD")
    )


def proof_for(situation: Situation, setting: Setting) -> Proof:
    """Without shards gradients are added up by another collective."""
    strategies = {str(dict(setting.values)["strategy"]), *(it.strategy for it in sharded(situation))}
    return "rounding" if "NO_SHARD" in strategies else "exact"


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: where the script wraps its model is not recorded."""
    value = dict(setting.values)["strategy"]
    return (NoSourceForm(reason=f"Pass sharding_strategy=ShardingStrategy.{value} to FullyShardedDataParallel."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set it for each wrapper, also for those that an ``auto_wrap_policy`` makes."""
    name = str(dict(setting.values)["strategy"])

    def choose(interface: str, arguments: dict[str, Any]) -> None:
        if interface == "fsdp1":
            from torch.distributed.fsdp import ShardingStrategy

            arguments["sharding_strategy"] = ShardingStrategy[name]

    hooks.before_sharding.append(choose)
