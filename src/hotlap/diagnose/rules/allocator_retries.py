"""The allocator keeps running out of memory and starts over.

## What it is
The driver had no memory left for a tensor, so torch's allocator returned its whole cache of free blocks and tried
again. The second attempt succeeded, without any message.

## Why it is slow
Returning memory makes the host wait until the device has finished all queued work, and the driver must allocate the
blocks for the next steps again. It is also the last thing that happens before an out-of-memory error.

## How to see it
The allocator's own count of such retries since the start (`torch.cuda.memory_stats()["num_alloc_retries"]`), compared
with the number of observed steps.

## What to do
Use less memory (mixed precision, activation checkpointing, a smaller batch with accumulation), waste less of it
(`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True`), or find other processes that use the device.

## When it is fine
Once or twice in the first steps, when libraries try algorithms that need a lot of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.memory_use import device_memory
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, percent, size
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.records import Finding, ScriptFacts

title = "The allocator keeps running out of memory"
group: Group = "memory"

_FEWEST_RETRIES = 3
_FEWEST_PER_STEP = 0.05


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if it happens in at least one of twenty steps.

    The first two retries may belong to the warm-up.
    """
    steps, retries = profile.evidence.observed_steps, profile.evidence.memory.retries
    if not profile.on_accelerator or steps <= 0 or retries < max(_FEWEST_RETRIES, _FEWEST_PER_STEP * steps):
        return
    yield Finding(
        rule="allocator-retries",
        kind="risk",
        share=exactly(0.0),
        title=f"The allocator ran out of memory and freed its cache {retries} times in {steps} observed steps.",
        evidence=tuple(_evidence(profile)),
        remedy="Mixed precision, activation checkpointing or a smaller batch with gradient accumulation need less "
        "memory; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True wastes less of it.",
        levers=levers_for("allocator-retries"),
    )


def _evidence(profile: Profile) -> Iterator[str]:
    yield "each time the host waited for all queued work, and the driver had to allocate the blocks again"
    use = device_memory(profile)
    if use is not None:
        yield f"tensors took {size(use.peak_bytes)} of {size(use.limit_bytes)} at their peak ({percent(use.share)})"


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(retries: int, steps: int = 40, device: str = "cuda:0") -> Profile:
    memory = MemoryTimeline(retries=retries, peak_allocated_bytes=22 << 30, limit_bytes=24 << 30)
    return Profile(facts=ScriptFacts(device=device), evidence=RunEvidence(observed_steps=steps, memory=memory))


fires = {
    "in every other step": _profile(retries=20),
    "three times in forty steps": _profile(retries=3),
}

silent = {
    "nothing was measured": Profile(),
    "twice, while libraries tried algorithms": _profile(retries=2),
    "rarely": _profile(retries=4, steps=200),
    "no device": _profile(retries=20, device="cpu"),
}
