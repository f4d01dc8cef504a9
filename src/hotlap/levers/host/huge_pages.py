"""Memory in pages of two megabytes instead of four kilobytes.

## What it does
Sets `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` before the process starts. The C library's allocator then asks the Linux
kernel for transparent huge pages (`madvise`). The processor looks up far fewer addresses, and large tensors that are
freed and allocated again in every step cost far fewer page faults.

## When it helps
Training on the CPU with tensors above some hundred kilobytes. It also reduces run-to-run noise.

## What it costs
Slightly more resident memory, since touching any byte of a page makes the whole page resident. It needs Linux with
glibc 2.35 or later, and a kernel whose transparent huge pages are on `madvise` (on `always` there is nothing left to
gain, on `never` nothing happens).

## Before
    python train.py

## After
    GLIBC_TUNABLES=glibc.malloc.hugetlb=1 python train.py

## What is proved
`exact`: the address of a number does not change its value. The losses must agree to the last bit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hotlap.levers.support.situations import bound_of_computing, device_kind, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Memory in pages of two megabytes"
proof: Proof = "exact"
addresses = ("page-faults", "dominant-operator")
parameters: dict[str, Parameter] = {}

VARIABLE = "GLIBC_TUNABLES"
TUNABLE = "glibc.malloc.hugetlb"


def obstacle(situation: Situation) -> Skipped | None:
    """Require Linux with huge pages on request, and CPU training."""
    machine = situation.machine
    if device_kind(situation) != "cpu":
        return Skipped(reason="The model's tensors are in an accelerator's memory, which this does not affect.")
    if machine.system and not machine.system.lower().startswith("linux"):
        return Skipped(reason="It needs Linux and its C library glibc.")
    if TUNABLE in dict(machine.environment).get(VARIABLE, ""):
        return Skipped(reason=f"{VARIABLE} already sets {TUNABLE}.", already=True)
    if machine.transparent_huge_pages == "always":
        return Skipped(reason="The kernel already uses huge pages for all programs.", already=True)
    if machine.transparent_huge_pages == "never":
        return Skipped(reason="The kernel's transparent huge pages are switched off (`never`).")
    return None


def bound(situation: Situation) -> float | None:
    """All memory accesses of the training process may get faster, but not waiting for workers."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("huge-pages"),)


def environment(setting: Setting) -> dict[str, str]:
    """The variable, added to the tunables that are set already."""
    present = [it for it in os.environ.get(VARIABLE, "").split(":") if it and not it.startswith(f"{TUNABLE}=")]
    return {VARIABLE: ":".join((*present, f"{TUNABLE}=1"))}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set in the environment, before Python starts."""
    reason = f"It is a variable that must be set before Python starts: {VARIABLE}={TUNABLE}=1."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Do nothing but warn if the variable is missing: for a running process it is too late."""
    if f"{TUNABLE}=1" not in os.environ.get(VARIABLE, ""):
        hooks.note(f"Huge pages are not in use: {VARIABLE}={TUNABLE}=1 must be set before Python starts.")
