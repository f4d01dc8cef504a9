"""Python's garbage collector pauses training steps.

## What it is
Python frees most objects as soon as nothing refers to them. Objects that refer to each other are found by the garbage
collector, which runs whenever enough objects were created, in the middle of a step.

## Why it is slow
A full collection traverses every container of the process: all modules, all layers, and all samples that a data set
keeps as lists and dictionaries. No other Python code runs meanwhile. Among processes that train together each pauses at
another time, and all wait for the slowest.

## How to see it
The interpreter reports each collection; the time of those in the observed steps as a share of these, without the calls
of `gc.collect()` in the script (the rule `empty-cache`). Fewer than ten collections are not counted: the objects that
hotlap creates while it observes may have caused them.

## What to do
Keep large data sets in arrays or tensors instead of lists and dictionaries. Call `gc.freeze()` once before the loop, so
that what exists by then is never traversed again; or disable the collector and collect between steps, as the lever
`garbage-collection` does.

## When it is fine
If the process creates many reference cycles, memory would grow without these pauses.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material, observed_share
from hotlap.diagnose.wording import count, duration, levers_for, percent
from hotlap.evidence import FEWEST_COLLECTIONS, GarbagePauses, LoopCall, RunEvidence
from hotlap.records import Finding

title = "Python's garbage collector pauses training steps"
group: Group = "host"

_NAME = "garbage-pauses"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if automatic collections take a material time."""
    pauses = profile.evidence.garbage
    explicit = sum(it.seconds for it in profile.evidence.calls if it.kind == "garbage-collection")
    share = exactly(observed_share(profile, max(0.0, pauses.seconds - explicit)))
    if pauses.collections < FEWEST_COLLECTIONS or not is_material(share):
        return
    steps = profile.evidence.observed_steps
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"Python's garbage collector takes {percent(share.value)} of the step.",
        evidence=(
            f"{count(pauses.collections, 'collection')} in {steps} observed steps, {pauses.full_collections} of them "
            f"full; the longest took {duration(pauses.longest_seconds)}",
        ),
        remedy="Call `gc.freeze()` before the training loop, and keep large data in arrays instead of Python objects.",
        levers=levers_for(_NAME),
    )


def _profile(seconds: float, *calls: LoopCall) -> Profile:
    pauses = GarbagePauses(collections=80, full_collections=8, seconds=seconds, longest_seconds=seconds / 8)
    return Profile(evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, garbage=pauses, calls=calls))


fires = {"a tenth of the step": _profile(0.4), "a quarter": _profile(1.0)}
silent = {
    "nothing measured": Profile(),
    "a thousandth of the step": _profile(0.004),
    "a few collections, which hotlap's own objects may have caused": Profile(
        evidence=RunEvidence(
            observed_steps=40,
            observed_seconds=4.0,
            garbage=GarbagePauses(collections=9, seconds=1.0, longest_seconds=0.2),
        )
    ),
    "all of it in the script's own calls": _profile(
        0.4, LoopCall(kind="garbage-collection", calls=40, steps=40, seconds=0.4)
    ),
}
