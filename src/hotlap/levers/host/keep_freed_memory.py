"""Freed memory that the process keeps for the next step.

## What it does
Sets three variables of the C library's allocator before the process starts: `MALLOC_MMAP_MAX_=0`, so that large tensors
come from the heap instead of from mappings of their own, `MALLOC_TRIM_THRESHOLD_`, so that the heap is not given back
to the system when tensors are freed, and `MALLOC_TOP_PAD_`, so that it grows in larger pieces. The next step's tensors
then get memory that the process has already, instead of fresh pages that the system must provide and clear. The
variables are those of "Malloc Tunable Parameters" in the manual of the GNU C library.

## When it helps
Training on the CPU whose large tensors are freed and allocated again in every step: logits over a vocabulary,
activations of large batches. The rule `page-faults` counts it. Launches also differ less from each other, since how
much memory is given back depends on how it happens to lie.

## What it costs
Resident memory stays at its peak, and may grow beyond it where pieces of many sizes leave gaps. Workers of a loader
keep theirs, too. It needs Linux with glibc; another allocator ignores the variables.

## Before
    python train.py

## After
    MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_TOP_PAD_=67108864 python train.py

## What is proved
`exact`: the address of a number does not change its value. The losses must agree to the last bit.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hotlap.allocators import PRELOADED
from hotlap.levers.support.situations import bound_of_computing, device_kind, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Freed memory kept for the next step"
proof: Proof = "exact"
addresses = ("page-faults",)
parameters: dict[str, Parameter] = {}

VARIABLES = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_TOP_PAD_": str(1 << 26)}
"""A threshold beyond any heap: with a smaller one a large heap would still be trimmed in every step."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require Linux with the C library's own allocator, not tuned yet, and CPU training."""
    machine = situation.machine
    environment = dict(machine.environment)
    if device_kind(situation) != "cpu":
        return Skipped(reason="The model's tensors are in an accelerator's memory, which this does not affect.")
    if machine.system and not machine.system.lower().startswith("linux"):
        return Skipped(reason="It needs Linux and its C library glibc.")
    if any(it in environment.get("LD_PRELOAD", "") for it in PRELOADED):
        return Skipped(reason="LD_PRELOAD has another allocator, which keeps freed memory by rules of its own.")
    if set_already := [it for it in VARIABLES if it in environment]:
        return Skipped(reason=f"The environment already sets {', '.join(set_already)}.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """All computation of the training process may get faster, but not waiting for workers."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("keep-freed-memory"),)


def environment(setting: Setting) -> dict[str, str]:
    """The variables of the C library's allocator."""
    return dict(VARIABLES)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set in the environment, before Python starts."""
    variables = " ".join(f"{name}={value}" for name, value in VARIABLES.items())
    return (NoSourceForm(reason=f"These are variables that must be set before Python starts: {variables}."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Do nothing but warn if a variable is missing: for a running process it is too late."""
    missing = [name for name, value in VARIABLES.items() if os.environ.get(name) != value]
    if missing:
        hooks.note(f"Freed memory is not kept: {', '.join(missing)} must be set before Python starts.")
