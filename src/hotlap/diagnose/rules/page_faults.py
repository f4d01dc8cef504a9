"""The system provides memory again in every step.

## What it is
The C library's allocator gives large pieces of memory back to the system as soon as they are freed. The next step asks
for them again, and gets pages that the system must first find, clear and map: a page fault for every four kilobytes.

## Why it is slow
The process waits while the kernel works, and the cleared pages push out of the caches what the next operator needs. How
much is given back depends on how the pieces happen to lie, so that launches of the same script differ.

## How to see it
The page faults of unmodified steps, counted by the system, times what a fresh page costs on this machine: tensors that
are mapped and written, against tensors whose memory is there.

## What to do
Let the process keep what it freed, as the lever `keep-freed-memory` does by variables of the C library; preload an
allocator that keeps it (`memory-allocator`); or ask for pages of two megabytes, of which there are five hundred times
fewer (`huge-pages`).

## When it is fine
Where memory is short: what a process keeps, others cannot use.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, is_material
from hotlap.diagnose.wording import count, duration, levers_for, percent, size
from hotlap.records import Ceilings, Finding, Machine, PhaseAccount, ScriptFacts

title = "The system provides memory again in every step"
group: Group = "host"

_NAME = "page-faults"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if providing memory takes a material part of the step on the CPU."""
    seconds_per_byte = profile.machine.ceilings.fresh_memory_seconds_per_byte
    if profile.on_accelerator or not seconds_per_byte or profile.account.wall <= 0:
        return
    seconds = profile.fresh_bytes_per_step * seconds_per_byte
    share = exactly(min(1.0, seconds / profile.account.wall))
    if not is_material(share):
        return
    faults = round(profile.fresh_bytes_per_step / mmap.PAGESIZE)
    yield Finding(
        rule=_NAME,
        share=share,
        title=f"The system provides memory again in every step: {percent(share.value)} of the step.",
        evidence=(
            f"{count(faults, 'page fault')} per step, for {size(profile.fresh_bytes_per_step)} of memory",
            f"a megabyte of fresh memory costs {duration(1e6 * seconds_per_byte)} on this machine",
        ),
        remedy="Let the process keep the memory that tensors free: variables of the C library, another allocator, or "
        "larger pages.",
        levers=levers_for(_NAME),
    )


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------


def _profile(bytes_per_step: float, device: str = "cpu", seconds_per_byte: float | None = 2e-10) -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        machine=Machine(ceilings=Ceilings(fresh_memory_seconds_per_byte=seconds_per_byte)),
        account=PhaseAccount(wall=0.1, phases=(("forward", 0.05), ("backward", 0.05))),
        fresh_bytes_per_step=bytes_per_step,
    )


fires = {"a twelfth of the step": _profile(4e7), "more than a step has": _profile(1e9)}
silent = {
    "nothing measured": Profile(),
    "some pages": _profile(8e6),
    "the cost of a page was not measured": _profile(4e7, seconds_per_byte=None),
    "the tensors are on a device": _profile(4e7, device="cuda:0"),
}
