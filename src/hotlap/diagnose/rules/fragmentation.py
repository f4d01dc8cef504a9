"""The allocator holds far more memory than training uses.

## What it is
torch's allocator keeps the blocks that it got from the driver. If sizes change from step to step, a new tensor may fit
none of the free blocks, and the allocator requests more, although enough memory is free in total.

## Why it is slow
The memory in the gaps is lost: the device is full although the tensors would fit. Then the allocator returns its cache
and tries again, which makes the device wait, and finally an out-of-memory error reports gigabytes "reserved by PyTorch
but unallocated".

## How to see it
The memory that the allocator had reserved at the ends of the last observed steps, compared with its peak of live
tensors. The difference was never in use at once.

## What to do
`PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` in the environment lets blocks grow instead of allocating new ones.
If batches are padded to a few lengths, the longest first, blocks can be reused.

## When it is fine
If the reserve comes from something that is over (autotuning, an evaluation with large batches) and nothing else needs
the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from hotlap.diagnose.api import Group
from hotlap.diagnose.memory_use import device_memory
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, name, percent, size
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.records import Finding, Machine, ScriptFacts

title = "The allocator holds far more memory than training uses"
group: Group = "memory"

_FEWEST_STEPS = 8
_LOST_SHARE_OF_DEVICE = 0.20
_TIMES_THE_PEAK = 1.3
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a finding if a fifth of the device is reserved beyond the peak in use."""
    use = device_memory(profile)
    column = profile.evidence.memory.reserved_bytes
    if use is None or len(column) < _FEWEST_STEPS:
        return
    reserved = median(column[-_FEWEST_STEPS:])
    lost = reserved - use.peak_bytes
    if lost < _LOST_SHARE_OF_DEVICE * use.limit_bytes or reserved < _TIMES_THE_PEAK * use.peak_bytes:
        return
    yield Finding(
        rule="fragmentation",
        kind="risk",
        share=exactly(0.0),
        title=f"The allocator holds {size(lost)} more than training ever used at once, "
        f"{percent(lost / use.limit_bytes)} of {name(use.owner)}.",
        evidence=(
            f"{size(reserved)} of {size(use.limit_bytes)} are reserved, at most {size(use.peak_bytes)} were in use",
        ),
        remedy=_remedy(profile.machine),
        levers=levers_for("fragmentation"),
    )


def _remedy(machine: Machine) -> str:
    variables = dict(machine.environment)
    if any("expandable_segments:True" in variables.get(it, "") for it in _VARIABLES):
        return "Pad batches to a few lengths and begin with the longest one, so that blocks can be reused."
    return (
        "Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True before python; where batches have many lengths, pad them "
        "to a few and begin with the longest one."
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_GIB = 1 << 30


def _profile(reserved: float, peak: float, limit: int = 24, variables: tuple[tuple[str, str], ...] = ()) -> Profile:
    memory = MemoryTimeline(
        reserved_bytes=(int(reserved * _GIB),) * 20, peak_allocated_bytes=int(peak * _GIB), limit_bytes=limit * _GIB
    )
    return Profile(
        facts=ScriptFacts(device="cuda:0"),
        machine=Machine(environment=variables),
        evidence=RunEvidence(observed_steps=20, memory=memory),
    )


fires = {
    "half of the reserve was never used": _profile(reserved=20, peak=10),
    "although segments may grow": _profile(
        reserved=22, peak=14, variables=(("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),)
    ),
}

silent = {
    "nothing was measured": Profile(),
    "a reserve a little above the peak": _profile(reserved=12, peak=10),
    "a small model on a large device": _profile(reserved=3, peak=1, limit=80),
    "the peak is not known": _profile(reserved=20, peak=0),
}
