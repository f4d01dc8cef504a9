"""Every rank trains on the same data.

## What it is
Several processes train one model, and all of them get the same batches. Their gradients are the same, so that averaging
them changes nothing.

## Why it is slow
All ranks but one repeat work: an epoch takes as long as in a single process, on several times as many devices.

## How to see it
The losses of all ranks are the same to the last bit in every step, although they are computed separately.

## What to do
Give each rank its own part of the data: a `DistributedSampler`, whose `set_epoch` is called in each epoch, or a seed
that depends on the rank where batches are generated.

## When it is fine
With tensor or pipeline parallelism, where ranks share the work on one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count
from hotlap.records import DataParallelFacts, Finding, Measurement, ScriptFacts

title = "Every rank trains on the same data"
group: Group = "distributed"
rests_on: tuple[Measurement, ...] = ()

_FEWEST_STEPS = 5


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding where ``DistributedDataParallel`` spans all ranks and their losses never differ."""
    processes = profile.facts.processes
    if processes < 2 or not any(it.processes == processes for it in profile.facts.data_parallel):
        return
    rows = profile.rank_losses
    steps = [it for it in zip(*rows, strict=False) if None not in it]
    if len(rows) != processes or len(steps) < _FEWEST_STEPS or any(len(set(it)) > 1 for it in steps):
        return
    if len(set(steps)) < _FEWEST_STEPS:  # a loss that hardly ever changes is the same on any data
        return
    yield Finding(
        rule="same-data-on-ranks",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=f"All {processes} ranks train on the same data: their losses are the same in every step.",
        evidence=(f"identical to the last bit on {processes} ranks in {count(len(steps), 'step')}",),
        remedy="Give each rank its own data: a DistributedSampler (and its set_epoch in each epoch), or a seed that "
        "depends on the rank.",
        site=next((it.site for it in profile.facts.data_parallel), None),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_FACTS = ScriptFacts(processes=2, data_parallel=(DataParallelFacts(processes=2, gradient_bytes=8),))
_FALLING = tuple(2.0 - 0.1 * step for step in range(10))
_OTHER = tuple(it + 0.01 for it in _FALLING)

fires = {
    "two ranks": Profile(facts=_FACTS, rank_losses=(_FALLING, _FALLING)),
    "two ranks, a loss of which was not read": Profile(facts=_FACTS, rank_losses=(_FALLING, (None, *_FALLING[1:]))),
}

silent = {
    "nothing was measured": Profile(),
    "other losses": Profile(facts=_FACTS, rank_losses=(_FALLING, _OTHER)),
    "one of ten steps differs": Profile(facts=_FACTS, rank_losses=(_FALLING, (*_FALLING[:-1], 0.0))),
    "a constant loss": Profile(facts=_FACTS, rank_losses=((1.0,) * 10,) * 2),
    "few steps": Profile(facts=_FACTS, rank_losses=(_FALLING[:3],) * 2),
    "one model over both ranks": Profile(facts=ScriptFacts(processes=2), rank_losses=(_FALLING,) * 2),
}
