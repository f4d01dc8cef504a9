"""Memory is cleaned up by hand in the training loop.

## What it is
`torch.cuda.empty_cache()` or `gc.collect()` in the loop, usually to avoid an out-of-memory error, which it does not.

## Why it is slow
`empty_cache()` waits for the device and returns all cached memory to the driver; the next step must allocate it again,
with slow calls that also wait for the device. torch reuses its cache automatically, and empties it before it runs out
of memory. `gc.collect()` traverses every object of the process, often hundreds of thousands, each time.

## How to see it
The time of such calls in the observed steps, as a share of these. The allocations that follow are not counted, nor are
calls in evaluation or at checkpoints.

## What to do
Remove the call. If memory is fragmented, set `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`; if it grows, find what
holds it (the rule `memory-growth`).

## When it is fine
Once per epoch, or if another program needs the device's memory in between.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material, observed_share
from hotlap.diagnose.wording import count, duration, levers_for, percent, place
from hotlap.evidence import LoopCall, LoopCallKind, RunEvidence
from hotlap.records import CallSite, Finding

title = "Memory is cleaned up by hand in the training loop"
group: Group = "host"

_NAME = "empty-cache"

_CALLS: dict[LoopCallKind, str] = {"empty-cache": "`empty_cache()`", "garbage-collection": "`gc.collect()`"}
_REMEDIES: dict[LoopCallKind, str] = {
    "empty-cache": "Remove it from the loop: torch reuses its cached memory, and frees it before it runs out of "
    "memory.",
    "garbage-collection": "Remove it from the loop, or call it once per epoch: Python collects garbage automatically.",
}


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per line of the loop that cleans up and takes a material time."""
    for call in profile.evidence.calls:
        share = exactly(observed_share(profile, call.seconds))
        if call.kind not in _CALLS or call.phase == "outside" or not is_material(share):
            continue
        yield Finding(
            rule=_NAME,
            share=share,
            title=f"{_CALLS[call.kind]} at {place(call.site)} takes {percent(share.value)} of the step.",
            evidence=(
                f"{count(call.calls, 'call')} in {call.steps} of {profile.evidence.observed_steps} observed steps, "
                f"{duration(call.seconds / max(1, call.calls))} each",
            ),
            remedy=_REMEDIES[call.kind],
            site=call.site,
            levers=levers_for(_NAME),
        )


def _profile(call: LoopCall) -> Profile:
    return Profile(evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, calls=(call,)))


_LINE = CallSite(role="step", file="/home/ada/train.py", line=52)

fires = {
    "the cache emptied in every step": _profile(
        LoopCall(kind="empty-cache", calls=40, steps=40, seconds=0.4, site=_LINE)
    ),
    "garbage collected in every fourth step, and slowly": _profile(
        LoopCall(kind="garbage-collection", calls=10, steps=10, seconds=0.9, site=_LINE)
    ),
}
silent = {
    "nothing measured": Profile(),
    "once in forty steps": _profile(LoopCall(kind="empty-cache", calls=1, steps=1, seconds=0.01, site=_LINE)),
    "in evaluation": _profile(
        LoopCall(kind="empty-cache", phase="outside", calls=40, steps=40, seconds=0.4, site=_LINE)
    ),
    "another kind of call": _profile(LoopCall(kind="print", calls=40, steps=40, seconds=0.4, site=_LINE)),
}
