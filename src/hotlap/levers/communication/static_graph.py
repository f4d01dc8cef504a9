"""Search for unused parameters once, not in each step.

## What it does
Sets `static_graph=True` of `DistributedDataParallel` and removes `find_unused_parameters=True`. Which weights get a
gradient is recorded in the first step instead of being looked up in the graph of each step.

## When it helps
If the script sets `find_unused_parameters=True` and its model has many operators. Searching takes time on the host in
each step, and the exchange of gradients cannot begin before it.

## What it costs
Every step must use the same weights, in the same order. Where that changes, torch raises an error or leaves gradients
out: the comparison of losses over all processes detects it in the steps that were compared.

## Before
    model = DistributedDataParallel(model, find_unused_parameters=True)

## After
    model = DistributedDataParallel(model, static_graph=True)

## What is proved
`exact` between two processes; `rounding` between more, whose gradients may be added up in another order. The losses of
every process are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.support.data_parallel import (
    proof_of_order,
    set_wrapper_arguments,
    without_exchange,
    wrappers,
)
from hotlap.levers.support.situations import bound_without, make_setting
from hotlap.records import DataParallelArguments, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Search for unused parameters once, not in each step"
proof: Proof = "exact"
addresses = ("exposed-communication", "python-overhead")
parameters: dict[str, Parameter] = {}

_ARGUMENTS = {"find_unused_parameters": False, "static_graph": True}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a wrapper that searches the graph."""
    if without_exchange(situation):
        return without_exchange(situation)
    if any(it.find_unused_parameters and not it.static_graph for it in wrappers(situation)):
        return None
    return Skipped(reason="The script does not search for unused parameters in each step.", already=True)


def bound(situation: Situation) -> float | None:
    """The search is part of the forward pass, and what it delays is part of the backward pass."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("static-graph"),)


def proof_for(situation: Situation, setting: Setting) -> Proof:
    """Between two processes the sum is the same to the last bit."""
    return proof_of_order(situation)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set both arguments where the wrapper is made."""
    return (DataParallelArguments(values=tuple(_ARGUMENTS.items())),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set both arguments when a wrapper is made."""
    set_wrapper_arguments(hooks, _ARGUMENTS)
