"""Gather the next weights of a sharded model earlier.

## What it does
`ahead="forward"` issues the exchange for the next module's weights before the present one computes: with FSDP1 by
`forward_prefetch=True`, with FSDP2 by `set_modules_to_forward_prefetch`. `ahead="unlimited"` sets FSDP1's
`limit_all_gathers=False`, so that the host need not wait before it issues the next exchange. `ahead="backward"` sets
FSDP1's `backward_prefetch=BACKWARD_PRE` where the script chose another value.

## When it helps
If exchanges of weights are exposed because the host issues them late: many small modules, slow Python.

## What it costs
Weights of one more module are held at the same time; without a limit, those of several.

## Before
    model = FullyShardedDataParallel(model, use_orig_params=True)

## After
    model = FullyShardedDataParallel(model, use_orig_params=True, forward_prefetch=True)

## What is proved
`exact`: the same weights are gathered, earlier. The losses of every process must agree to the last bit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.sharded_by_script import on_units, sharded, without_sharding
from hotlap.levers.support.situations import bound_without, device_kind, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Gather the next weights of a sharded model earlier"
proof: Proof = "exact"
addresses = ("exposed-communication",)
parameters = {"ahead": Parameter(str, choices=("forward", "backward", "unlimited"))}

_WORDS = {
    "forward": "Set forward_prefetch=True (FSDP1), or call set_modules_to_forward_prefetch (FSDP2).",
    "backward": "Set backward_prefetch=BackwardPrefetch.BACKWARD_PRE.",
    "unlimited": "Set limit_all_gathers=False.",
}


def obstacle(situation: Situation) -> Skipped | None:
    """Require units that follow each other, on a device whose exchanges overlap with computing."""
    if without_sharding(situation):
        return without_sharding(situation)
    if device_kind(situation) == "cpu":
        return Skipped(reason="On the processor nothing is computed while weights are gathered.")
    if not candidates(situation):
        return Skipped(reason="The model is one unit, whose weights are gathered at once.")
    return None


def bound(situation: Situation) -> float | None:
    """Weights are gathered in forward and backward."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """What the script does not do yet."""
    several = [it for it in sharded(situation) if it.units > 1]
    first = [it for it in several if it.api == "fsdp1"]
    wanted = {
        "forward": any(not it.forward_prefetch for it in several),
        "backward": any(it.backward_prefetch != "BACKWARD_PRE" for it in first),
        "unlimited": any(it.limit_all_gathers for it in first),
    }
    return tuple(make_setting("sharded-prefetch", ahead=name) for name, it in wanted.items() if it)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: where the script shards its model is not recorded."""
    return (NoSourceForm(reason=_WORDS[str(dict(setting.values)["ahead"])]),)


def install(hooks: Hooks, setting: Setting) -> None:
    """FSDP1 reads its options in the first forward pass, which comes after this."""
    ahead = str(dict(setting.values)["ahead"])

    def change(units: list[Any], interface: str) -> None:
        if interface == "fsdp2":
            if ahead == "forward":
                for unit, following in pairwise(units[1:]):
                    unit.set_modules_to_forward_prefetch([following])
            return
        from torch.distributed.fsdp import BackwardPrefetch

        for unit in units:
            if ahead == "forward":
                unit.forward_prefetch = True
            elif ahead == "unlimited":
                unit.limit_all_gathers = False
            else:
                unit.backward_prefetch = BackwardPrefetch.BACKWARD_PRE

    on_units(hooks, change)
