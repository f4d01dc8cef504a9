"""One rank's losses differ from those of the others.

## What it is
Ranks train one model on parts of one data set, and one of them has clearly larger or smaller losses than the others.

## Why it is slow
It does not make steps longer. It shows that the ranks do not train one model on comparable data: gradients that are not
exchanged (a model used without its `DistributedDataParallel` wrapper), weights that began differently, a loss that is
scaled on one rank only, or data that is sorted and divided into contiguous parts.

## How to see it
The difference between a rank's loss and the mean of the others, step by step, over all observed steps.

## What to do
Compare a checksum of the weights on all ranks after a few steps. If they differ, gradients are not exchanged or the
ranks began with other weights. If they are the same, the data of that rank differs: shuffle before dividing it.

## When it is fine
If ranks train on different sources of data by design, or with other parts of the model (pipeline, experts).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import count, percent
from hotlap.records import DataParallelFacts, Finding, Measurement, ScriptFacts

title = "One rank's losses differ from those of the others"
group: Group = "distributed"
rests_on: tuple[Measurement, ...] = ()

_FEWEST_STEPS = 20
_CLEAR_SHARE = 0.1
_CLEAR_ERRORS = 8.0
"""Losses of successive steps are not independent, so that more than the usual two standard errors is required."""


class _Odd(NamedTuple):
    """The rank, the mean of its differences from the others' mean as a share of that, and in standard errors."""

    rank: int
    share: float
    errors: float


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding, about the rank that differs most, where ``DistributedDataParallel`` spans all ranks."""
    processes = profile.facts.processes
    if not any(it.processes == processes > 1 for it in profile.facts.data_parallel):
        return
    steps = [it for it in zip(*profile.rank_losses, strict=False) if None not in it]
    rows = [tuple(it) for it in zip(*steps, strict=True)]
    if len(rows) < 2 or len(steps) < _FEWEST_STEPS:
        return
    odd = max((_compared(rows, rank) for rank in range(len(rows))), key=lambda it: it.errors)
    if abs(odd.share) < _CLEAR_SHARE or odd.errors < _CLEAR_ERRORS:
        return
    others = "the other rank's" if len(rows) == 2 else "those of the other ranks"
    yield Finding(
        rule="ranks-disagree",
        kind="wrong-numbers",
        share=exactly(0.0),
        title=f"The losses of rank {odd.rank} are {percent(abs(odd.share))} {'higher' if odd.share > 0 else 'lower'} "
        f"than {others}.",
        evidence=(f"by {odd.errors:.3g} standard errors, in {count(len(steps), 'step')}",),
        remedy="Compare a checksum of the weights on all ranks after a few steps: if they differ, gradients are not "
        "exchanged; if not, the data of that rank differs.",
    )


def _compared(rows: Sequence[tuple[float | None, ...]], rank: int) -> _Odd:
    columns = list(zip(*rows, strict=True))
    others = [fmean(value for at, value in enumerate(it) if at != rank and value is not None) for it in columns]
    own = [value for value in rows[rank] if value is not None]
    differences = [one - other for one, other in zip(own, others, strict=True)]
    mean, size = fmean(differences), fmean(map(abs, others))
    error = stdev(differences) / math.sqrt(len(differences))
    return _Odd(rank, mean / size if size else 0.0, abs(mean) / error if error else (math.inf if mean else 0.0))


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_FACTS = ScriptFacts(processes=3, data_parallel=(DataParallelFacts(processes=3, gradient_bytes=8),))
_TWO = ScriptFacts(processes=2, data_parallel=(DataParallelFacts(processes=2, gradient_bytes=8),))


def _losses(level: float, turn: int) -> tuple[float, ...]:
    """A falling loss with noise that is another one for each ``turn``."""
    return tuple(level * (2.0 - 0.01 * step + 0.2 * math.sin(7.0 * step + turn)) for step in range(40))


fires = {
    "the last of three is higher": Profile(facts=_FACTS, rank_losses=(_losses(1, 0), _losses(1, 1), _losses(1.5, 2))),
    "one of two is lower": Profile(facts=_TWO, rank_losses=(_losses(1, 0), _losses(0.5, 1))),
}

silent = {
    "nothing was measured": Profile(),
    "noise alone": Profile(facts=_FACTS, rank_losses=(_losses(1, 0), _losses(1, 1), _losses(1, 2))),
    "a small difference": Profile(facts=_TWO, rank_losses=(_losses(1, 0), _losses(1.03, 1))),
    "few steps": Profile(facts=_TWO, rank_losses=(_losses(1, 0)[:6], _losses(0.5, 1)[:6])),
    "the same losses": Profile(facts=_TWO, rank_losses=(_losses(1, 0), _losses(1, 0))),
    "no wrapper over all ranks": Profile(facts=ScriptFacts(processes=2), rank_losses=(_losses(1, 0), _losses(0.5, 1))),
}
