"""Ranks that should train one model hold different weights.

## What it is
Each rank wraps the model in `DistributedDataParallel`, so that all of them begin with the same weights and take the
same steps. After some steps the weights of one rank differ from those of another. The usual cause is a model that is
called without its wrapper (`wrapped = DistributedDataParallel(model)`, then `loss = model(x)`): no gradient is
exchanged, and each rank trains a model of its own.

## Why it is slow
It does not make steps longer. But N processes train N models on one Nth of the data each, and the one that is saved has
seen no other data. `no_sync()` around the last backward pass of a step has the same effect, and so has a weight that is
changed on one rank alone.

## How to see it
A digest of each rank's weights after the last observed step, and the calls of the wrapped model in the first steps.

## What to do
Call the wrapper, not the model inside it. Keep the name `model` for the wrapper
(`model = DistributedDataParallel(model)`), so that the other one cannot be called by mistake.

## When it is fine
If the script exchanges weights or gradients itself, now and then, as local SGD does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.records import CallSite, DataParallelFacts, Finding, Measurement, ScriptFacts

title = "Ranks that should train one model hold different weights"
group: Group = "distributed"
rests_on: tuple[Measurement, ...] = ()

_OF_LOCAL_SGD = "SGD"
"""Part of the names of torch's hooks that let ranks go apart for some steps by design (``post_localSGD_hook``)."""


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding where digests differ under a wrapper over all ranks; with the line that goes round the wrapper,
    where one does."""
    facts = profile.facts
    wrappers = [it for it in facts.data_parallel if it.processes == facts.processes > 1]
    if not wrappers or any(_OF_LOCAL_SGD in it.communication_hook for it in wrappers):
        return
    steps = {len(it) for it in profile.rank_losses}
    if len(steps) != 1 or not min(steps) or len(set(profile.rank_weights)) < 2 or not all(profile.rank_weights):
        return
    ranks = [rank for rank, it in enumerate(profile.rank_weights) if it != profile.rank_weights[0]]
    bypassed = next((it.bypassed_at for it in wrappers if it.bypassed_at is not None), None)
    yield Finding(
        rule="different-weights",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=_title(ranks, bypassed, max(steps)),
        evidence=(_digests(profile.rank_weights, ranks[0]),)
        + (("the DistributedDataParallel itself was not called in the first steps",) if bypassed else ()),
        site=bypassed,
        remedy="Call the DistributedDataParallel instead of the model that it wraps."
        if bypassed is not None
        else "Look for weights that one rank changes alone, and for a no_sync() around a step's last backward pass.",
    )


def _title(ranks: list[int], bypassed: CallSite | None, steps: int) -> str:
    apart = f"weights of {_named(ranks)} differ from those of rank 0 after {count(steps, 'step')}"
    if bypassed is not None:
        return f"The model is called without its DistributedDataParallel: gradients are not exchanged, and {apart}."
    return f"The {apart}."


def _digests(weights: Sequence[str], rank: int) -> str:
    return f"a digest of all weights is {weights[0]} on rank 0 and {weights[rank]} on rank {rank}"


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_LINE = CallSite(role="model", file="/home/ada/train.py", line=12)
_FACTS = ScriptFacts(processes=2, data_parallel=(DataParallelFacts(processes=2, gradient_bytes=8),))
_BYPASSED = ScriptFacts(
    processes=2, data_parallel=(DataParallelFacts(processes=2, gradient_bytes=8, bypassed_at=_LINE),)
)
_LOCAL = ScriptFacts(
    processes=2,
    data_parallel=(DataParallelFacts(processes=2, gradient_bytes=8, communication_hook="post_localSGD_hook"),),
)
_LOSSES = ((1.0,) * 10,) * 2

fires = {
    "the model is called without its wrapper": Profile(facts=_BYPASSED, rank_losses=_LOSSES, rank_weights=("a1", "b2")),
    "the third of three": Profile(
        facts=ScriptFacts(processes=3, data_parallel=(DataParallelFacts(processes=3, gradient_bytes=8),)),
        rank_losses=((1.0,) * 10,) * 3,
        rank_weights=("a1", "a1", "b2"),
    ),
}

silent = {
    "nothing was measured": Profile(),
    "the same weights": Profile(facts=_FACTS, rank_losses=_LOSSES, rank_weights=("a1", "a1")),
    "the script exchanges gradients itself": Profile(facts=_BYPASSED, rank_losses=_LOSSES, rank_weights=("a1", "a1")),
    "no digest": Profile(facts=_BYPASSED, rank_losses=_LOSSES, rank_weights=("a1", "")),
    "one rank is a step ahead": Profile(
        facts=_FACTS, rank_losses=((1.0,) * 10, (1.0,) * 11), rank_weights=("a1", "b2")
    ),
    "local SGD": Profile(facts=_LOCAL, rank_losses=_LOSSES, rank_weights=("a1", "b2")),
    "no wrapper over all ranks": Profile(
        facts=ScriptFacts(processes=2), rank_losses=_LOSSES, rank_weights=("a1", "b2")
    ),
}
