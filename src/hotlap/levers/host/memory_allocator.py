"""Memory from another allocator than the C library's.

## What it does
Sets `LD_PRELOAD` to jemalloc or tcmalloc before the process starts, where one of them is installed. Both give freed
memory back to the next tensor of the same size with less locking, and return it to the kernel later, so that a step
causes fewer page faults.

## When it helps
Training on the CPU that allocates many tensors of varying sizes, with several threads or loader workers.

## What it costs
Some more resident memory, since freed memory is kept longer. The library must be installed: Debian and Ubuntu name the
packages `libjemalloc2` and `libtcmalloc-minimal4`.

## Before
    python train.py

## After
    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libjemalloc.so.2 python train.py

## What is proved
`exact`: the address of a number does not change its value. The losses must agree to the last bit.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.allocators import LIBRARIES, PRELOADED, installed
from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import bound_of_computing, device_kind, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Memory from another allocator"
proof: Proof = "exact"
addresses = ("page-faults",)
parameters = {"library": Parameter(str, choices=tuple(LIBRARIES))}

VARIABLE = "LD_PRELOAD"
_MAPS = Path("/proc/self/maps")


def obstacle(situation: Situation) -> Skipped | None:
    """Require Linux, CPU training, and a library that is installed and not preloaded yet."""
    machine = situation.machine
    if device_kind(situation) != "cpu":
        return Skipped(reason="The model's tensors are in an accelerator's memory, which this does not affect.")
    if any(it in dict(machine.environment).get(VARIABLE, "") for it in PRELOADED):
        return Skipped(reason=f"{VARIABLE} already has another allocator.", already=True)
    if not machine.allocators:
        return Skipped(reason="Neither jemalloc nor tcmalloc is installed in a folder of the system's libraries.")
    return None


def bound(situation: Situation) -> float | None:
    """All computation of the training process may get faster, but not waiting for workers."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Each library that is installed."""
    return tuple(make_setting("memory-allocator", library=it) for it in LIBRARIES if it in situation.machine.allocators)


def environment(setting: Setting) -> dict[str, str]:
    """The library in front of those that are preloaded already; nothing where it is not installed."""
    path = installed().get(str(dict(setting.values)["library"]))
    if path is None:
        return {}
    present = [it for it in os.environ.get(VARIABLE, "").replace(":", " ").split() if it != path]
    return {VARIABLE: ":".join((path, *present))}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Set in the environment, before Python starts."""
    library = dict(setting.values)["library"]
    reason = f"It is a variable that must be set before Python starts: {VARIABLE} with the path of {library}."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Do nothing but warn if the library is not loaded: for a running process it is too late."""
    library = str(dict(setting.values)["library"])
    try:
        is_loaded = library in _MAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        is_loaded = library in os.environ.get(VARIABLE, "")
    if not is_loaded:
        hooks.note(f"{library} is not in use: {VARIABLE} must name it before Python starts.")
