"""A large part of each batch is padding.

## What it is
The model gets batches with an `attention_mask`, and the mask leaves out more than a quarter of their positions:
sequences are padded to the longest one of their batch, or to a fixed length.

## Why it is slow
Layers compute padded positions like all others; only attention and the loss leave them out afterwards. Forward and
backward take nearly in proportion to the number of positions.

## How to see it
`hotlap profile train.py` counts positions and those in use in the observed steps. By hand: `mask.float().mean()` of a
batch.

## What to do
Pad to the longest sequence of the batch instead of a fixed length (`padding=True`, not `padding="max_length"`). Sort
batches by length, with a sampler or an option of the trainer. Or pack several sequences into one row, by a collator
(`DataCollatorWithFlattening` of transformers): `hotlap tune --allow packed-sequences` measures what that gives for
language models of transformers. Sorting and packing change which samples meet in a batch, or which random numbers they
get: check what is learned.

## When it is fine
If a compiler or an engine needs batches of one shape, and compiling again would cost more than padding.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.operators import WORTH_A_LOOK
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, computing_share
from hotlap.diagnose.wording import count, levers_for, percent
from hotlap.evidence import PaddedForwards, RunEvidence
from hotlap.records import Finding, PhaseAccount

title = "A large part of each batch is padding"
group: Group = "compute"

LEAST_PADDING = 0.25
"""Sequences of one batch differ in length; a smaller part is hard to avoid."""

_NAME = "padded-batches"
_FEWEST_FORWARDS = 5


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if much of the batches is padding, and computing takes a notable part of the step."""
    padding = profile.evidence.padding
    if padding.forwards < _FEWEST_FORWARDS or not 0 < padding.used <= padding.positions:
        return
    padded = 1 - padding.used / padding.positions
    bound = padded * computing_share(profile)
    if padded < LEAST_PADDING or bound < WORTH_A_LOOK:
        return
    loaders = profile.facts.training_loaders
    yield Finding(
        rule=_NAME,
        share=at_most(bound),
        title=f"{percent(padded)} of the positions in batches are padding.",
        evidence=(
            f"{padding.used:,} of {padding.positions:,} positions are in use, in "
            f"{count(padding.forwards, 'training forward')}, by `attention_mask`",
            f"Without padding, forward and backward would save at most {percent(bound)} of the step.",
        ),
        remedy="Pad to the longest sequence of the batch, sort batches by length, or pack several sequences in a row.",
        site=loaders[0].site if loaders else None,
        levers=levers_for(_NAME),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(used: int, positions: int = 10_000, forwards: int = 40, computing: float = 0.08) -> Profile:
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(("data_wait", 0.1 - computing), ("forward", computing / 2), ("backward", computing / 2)),
        ),
        evidence=RunEvidence(
            observed_steps=40,
            observed_seconds=4.0,
            padding=PaddedForwards(forwards=forwards, positions=positions, used=used),
        ),
    )


fires = {
    "half of the positions": _profile(5_000),
    "a third, where computing takes a third": _profile(6_600, computing=0.033),
}
silent = {
    "nothing was measured": Profile(),
    "a tenth of the positions": _profile(9_000),
    "no padding": _profile(10_000),
    "half of them, but the step waits for data": _profile(5_000, computing=0.005),
    "two forwards": _profile(5_000, forwards=2),
    "a mask that leaves out all": _profile(0),
}
