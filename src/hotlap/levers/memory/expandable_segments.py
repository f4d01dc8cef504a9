"""Let segments of device memory grow instead of allocating new ones.

## What it does
Sets `PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True` before the process starts. torch's allocator then reserves
addresses rather than memory, so that a segment can grow in place for a larger tensor. Otherwise it would allocate
another segment and keep the old one.

## When it helps
When the size of batches varies, or evaluation uses other sizes than training: free memory is fragmented into gaps that
are too small for new tensors, and the allocator has to free its cache and retry.

## What it costs
Nothing if sizes are constant. Not every version of torch and driver can share tensors in such memory with other
processes.

## Before
    python train.py

## After
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py

## What is proved
`exact`: where numbers are stored does not change them. The losses must agree to the last bit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hotlap.levers.support.situations import accelerator, bound_of_computing, is_nvidia_like, make_setting
from hotlap.records import NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter
    from hotlap.runtime.hooks import Hooks

title = "Let segments of device memory grow in place"
proof: Proof = "exact"
addresses = ("fragmentation", "allocator-retries")
parameters: dict[str, Parameter] = {}

OPTION = "expandable_segments"
VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
_NEWER_NAME = "PYTORCH_ALLOC_CONF"
"""If it is set, torch ignores the other name; versions before 2.9 do not know it."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require training on an NVIDIA GPU whose allocator is at its default."""
    if not is_nvidia_like(situation):
        return Skipped(reason="Only the allocator for NVIDIA GPUs has such segments.")
    device = accelerator(situation)
    if device is not None and device.kind != "cuda":
        return Skipped(reason="The allocator for this device has no such segments.")
    options = _options(dict(situation.machine.environment))
    chosen = next((it for it in options if it.partition(":")[0].strip() == OPTION), None)
    if chosen is None:
        managed = any(it.partition(":")[0].strip() == "backend" and "native" not in it for it in options)
        return Skipped(reason="The environment selects another allocator.") if managed else None
    if chosen.partition(":")[2].strip().lower() == "true":
        return Skipped(reason=f"The environment already sets {OPTION}.", already=True)
    return Skipped(reason=f"The environment explicitly disables {OPTION}.")


def bound(situation: Situation) -> float | None:
    """Waiting for the allocator may become shorter; waiting for workers does not."""
    return bound_of_computing(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is nothing to choose."""
    return (make_setting("expandable-segments"),)


def environment(setting: Setting) -> dict[str, str]:
    """The variable that torch reads, with the option added to existing ones."""
    return {_variable(os.environ): ",".join((*_without_option(os.environ), f"{OPTION}:True"))}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: the environment must be set before torch's allocator starts."""
    reason = f"An environment variable must be set before the allocator starts: {VARIABLE}={OPTION}:True."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Note if a plan is applied to a running process, which is too late for the environment."""
    if f"{OPTION}:True" not in os.environ.get(_variable(os.environ), ""):
        hooks.note(f"Segments do not grow: {VARIABLE}={OPTION}:True must be set before Python starts.")


def _variable(variables: Mapping[str, str]) -> str:
    return _NEWER_NAME if variables.get(_NEWER_NAME) else VARIABLE


def _options(variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(it for it in variables.get(_variable(variables), "").split(",") if it.strip())


def _without_option(variables: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(it for it in _options(variables) if it.partition(":")[0].strip() != OPTION)
