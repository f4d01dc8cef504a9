"""Memory is nearly full.

## What it is
At its peak, training holds more than 92 % of the device's memory in live tensors, or of the machine's memory if it
trains on the CPU.

## Why it is slow
Near the limit the allocator must free its cache and request memory from the driver again, which makes the device wait.
And a slightly longer sequence, a larger last batch or an evaluation then ends the run with an out-of-memory error.

## How to see it
The allocator's peak of live tensors, compared with the device's memory; on the CPU the peak resident memory of all
processes of the run, compared with the memory of the machine (or its control group).

## What to do
Lower precision of activations (mixed precision), activation checkpointing, a smaller batch with gradient accumulation;
on the CPU also fewer loader workers.

## When it is fine
If all batches have one shape and evaluation needs no more memory than training: then the peak has already been reached.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.memory_use import MemoryUse, device_memory, host_memory
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly
from hotlap.diagnose.wording import levers_for, name, percent, size
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.records import Accelerator, Finding, Machine, ScriptFacts

title = "Memory is nearly full"
group: Group = "memory"

_NEARLY_FULL = 0.92
_ON_DEVICE = (
    "Keep some memory free for a longer batch: mixed precision or activation checkpointing take less, and so "
    "does a smaller "
    "batch with gradient accumulation."
)
_ON_HOST = "Keep some memory free: fewer loader workers, a smaller prefetch_factor, or data that is read on demand."


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding for the device, and one for the machine's own memory."""
    for use, remedy in ((device_memory(profile), _ON_DEVICE), (host_memory(profile), _ON_HOST)):
        if use is not None and use.share > _NEARLY_FULL:
            yield _finding(use, remedy)


def _finding(use: MemoryUse, remedy: str) -> Finding:
    return Finding(
        rule="close-to-limit",
        kind="risk",
        share=exactly(0.0),
        title=f"At its peak, training holds {percent(use.share)} of the memory of {name(use.owner)}.",
        evidence=(
            f"{size(use.peak_bytes)} of {size(use.limit_bytes)}; {size(use.limit_bytes - use.peak_bytes)} are left",
        ),
        remedy=remedy,
        levers=levers_for("close-to-limit"),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_GIB = 1 << 30


def _on_device(peak_bytes: int, limit_bytes: int = 24 * _GIB) -> Profile:
    memory = MemoryTimeline(peak_allocated_bytes=peak_bytes, limit_bytes=limit_bytes)
    return Profile(facts=ScriptFacts(device="cuda:0"), evidence=RunEvidence(observed_steps=40, memory=memory))


fires = {
    "a device with one GiB left": _on_device(23 * _GIB),
    "a device whose size is known from the machine": Profile(
        facts=ScriptFacts(device="cuda:0"),
        machine=Machine(accelerators=(Accelerator(kind="cuda", name="L4", memory_bytes=24 * _GIB),)),
        device_peak_bytes=23 * _GIB,
    ),
    "the machine's own memory": Profile(machine=Machine(memory_bytes=16 * _GIB), host_peak_bytes=15 * _GIB),
}

silent = {
    "nothing was measured": Profile(),
    "nine tenths": _on_device(9 * 24 * _GIB // 10),
    "the limit is not known": _on_device(23 * _GIB, limit_bytes=0),
    "half of the machine": Profile(machine=Machine(memory_bytes=16 * _GIB), host_peak_bytes=8 * _GIB),
}
