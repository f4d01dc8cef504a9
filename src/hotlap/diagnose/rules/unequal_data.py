"""Ranks train on batches of different sizes.

## What it is
In a step some ranks process more samples than others, in the same number of steps.

## Why it is slow
The ranks exchange gradients in each step, so that those with small batches wait for those with large ones.
`DistributedDataParallel` also averages over ranks, not over samples: a sample in a small batch counts for more than one
in a large batch.

## How to see it
Samples per step, counted on each rank in the same steps.

## What to do
Use the same batch size on each rank: a `DistributedSampler`, which gives all of them equally many samples, and
`drop_last=True`. If the data cannot be divided evenly, scale each rank's loss by its number of samples.

## When it is fine
If devices of different speed train together, and the loss is scaled by the number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, percent
from hotlap.records import Finding, Measurement, ScriptFacts

title = "Ranks train on batches of different sizes"
group: Group = "distributed"
rests_on: tuple[Measurement, ...] = ()

_FEWEST_STEPS = 5
_CLEARLY_MORE = 0.05


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if a rank has over 5 % more samples per step than another; nothing where they were guessed."""
    rows = profile.rank_samples
    steps = min((len(it) for it in rows), default=0)
    if len(rows) < 2 or steps < _FEWEST_STEPS or profile.facts.samples_from not in ("loader", "batch"):
        return
    means = [fmean(it[:steps]) for it in rows]
    most, least = (pick(range(len(means)), key=means.__getitem__) for pick in (max, min))
    if not means[least] or means[most] / means[least] - 1 < _CLEARLY_MORE:
        return
    yield Finding(
        rule="unequal-data",
        kind="hint",
        share=exactly(0.0),
        title=f"Rank {most} trains on {percent(means[most] / means[least] - 1)} more samples per step than rank "
        f"{least}.",
        evidence=(
            f"{means[most]:.3g} samples per step on rank {most}, {means[least]:.3g} on rank {least}, in "
            f"{count(steps, 'step')}",
        ),
        remedy="Give all ranks batches of one size (DistributedSampler, drop_last=True), or scale each rank's loss by "
        "its number of samples: gradients are averaged over ranks.",
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_FACTS = ScriptFacts(processes=2, samples_from="loader")

fires = {
    "twice as many": Profile(facts=_FACTS, rank_samples=((32,) * 10, (64,) * 10)),
    "the second of three": Profile(facts=_FACTS, rank_samples=((32,) * 10, (40,) * 10, (32,) * 9)),
}

silent = {
    "nothing was measured": Profile(),
    "one rank": Profile(facts=_FACTS, rank_samples=((32,) * 10,)),
    "equal batches": Profile(facts=_FACTS, rank_samples=((32,) * 10, (32,) * 10)),
    "a short last batch": Profile(facts=_FACTS, rank_samples=((32,) * 40, (*(32,) * 39, 20))),
    "few steps": Profile(facts=_FACTS, rank_samples=((32,) * 3, (64,) * 3)),
    "guessed from the inputs": Profile(
        facts=ScriptFacts(processes=2, samples_from="inputs"), rank_samples=((32,) * 10, (64,) * 10)
    ),
}
