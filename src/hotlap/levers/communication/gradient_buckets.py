"""Exchange gradients between processes in larger or smaller buckets.

## What it does
Sets `bucket_cap_mb` of `DistributedDataParallel`. Gradients are collected in buckets of that size, and a bucket is
exchanged as soon as it is full, while the backward pass continues. torch's own default is 25 MB after a first bucket of
1 MB.

## When it helps
If exchanging gradients takes a notable share of the step. Few large buckets pay the latency of a collective less often;
many small ones overlap more of the exchange with the backward pass.

## What it costs
Larger buckets begin later: the last one overlaps with nothing. Each bucket is a buffer as large as its gradients.

## Before
    model = DistributedDataParallel(model)

## After
    model = DistributedDataParallel(model, bucket_cap_mb=50)

## What is proved
`exact` between two processes, since a sum of two numbers has one order; `rounding` between more, whose gradients may be
added up in another order. The losses of every process are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter
from hotlap.levers.support.data_parallel import (
    bound_of_exchange,
    buckets,
    proof_of_order,
    set_wrapper_arguments,
    without_exchange,
    wrappers,
)
from hotlap.levers.support.situations import make_setting
from hotlap.records import DataParallelArguments, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Exchange gradients between processes in larger or smaller buckets"
proof: Proof = "exact"
addresses = ("exposed-communication",)
parameters = {"bucket_cap_mb": Parameter(int, minimum=1)}

_TRIED = (5, 50, 200)


def obstacle(situation: Situation) -> Skipped | None:
    """Require gradients for which another size makes another number of buckets."""
    if without_exchange(situation):
        return without_exchange(situation)
    if candidates(situation):
        return None
    return Skipped(reason="The gradients are so few that each size of bucket holds all of them.")


def bound(situation: Situation) -> float | None:
    """The exchange is part of the backward pass."""
    return bound_of_exchange(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Sizes that lead to different numbers of buckets than the script's own."""
    found: list[Setting] = []
    seen = {tuple(buckets(it.gradient_bytes, it.bucket_cap_mb) for it in wrappers(situation))}
    for size in _TRIED:
        counts = tuple(buckets(it.gradient_bytes, size) for it in wrappers(situation))
        if counts not in seen:
            seen.add(counts)
            found.append(make_setting("gradient-buckets", bucket_cap_mb=size))
    return tuple(found)


def proof_for(situation: Situation, setting: Setting) -> Proof:
    """Between two processes the sum is the same to the last bit."""
    return proof_of_order(situation)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set the argument where the wrapper is made."""
    return (DataParallelArguments(values=setting.values),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set the argument when a wrapper is made."""
    set_wrapper_arguments(hooks, dict(setting.values))
