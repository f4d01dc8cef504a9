"""The optimizer's step takes a large part of the time, and its fused implementation is not used.

## What it is
The optimizer has an implementation that updates all parameters in one kernel, and the script does not request it. torch
then uses a loop over all parameters on a CPU, and a few kernels for each operation (`foreach`) on a GPU. With
`foreach=False` it loops on both.

## Why it is slow
Updating a parameter takes several operations, each of which reads and writes all of it. Together they pass over memory
many times, and each small tensor costs a kernel launch or a call from Python. The fused implementation passes over
memory once.

## How to see it
The phase `optimizer` of the time account. With Adam and float32 parameters, 28 bytes must be moved for each of them;
`hotlap doctor` measures the memory bandwidth, which limits the fused implementation.

## What to do
Add `fused=True` to the optimizer's arguments.

## When it is fine
If the parameters are few and large, so that memory is the limit in any case. The fused implementation rounds
differently, so losses differ in their last digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from hotlap.diagnose.examples import CPU, GPU, run_on, with_optimizer
from hotlap.diagnose.operators import site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, is_material, phase_share
from hotlap.diagnose.wording import duration, levers_for, percent, share_of_step
from hotlap.records import Finding, OptimizerFacts

title = "The optimizer's fused implementation is not used"
group = "compute"

LARGE_BYTES = 256 << 20
"""Parameters whose update moves more bytes do not fit into a cache, so memory bandwidth limits it."""

# What a fused update of one float32 parameter reads and writes at least; the optimizer's moments are float32.
_BYTES_MOVED = MappingProxyType({"Adam": 28, "AdamW": 28, "Adagrad": 20, "SGD": 12})
_FUSED_ON = frozenset({"cpu", "cuda", "mps", "xpu"})


def check(profile: Profile) -> Iterator[Finding]:
    """Unless the script chose `foreach`, or rules fused kernels out; what they could save is the phase less what memory
    needs."""
    unfused = [it for it in profile.facts.optimizers if could_be_fused(it)]
    share = phase_share(profile, "optimizer")
    if not unfused or not is_material(share) or profile.facts.device.partition(":")[0] not in _FUSED_ON:
        return
    needed = min(share.value, _needed_seconds(profile) / profile.account.wall)
    saving = share.value - needed
    if saving < MATERIAL:
        return
    tensors = sum(it.trainable for it in profile.facts.models)
    kinds = " and ".join(sorted({it.kind for it in unfused}))
    loops = all(it.foreach is False for it in unfused)
    seconds = duration(profile.account.seconds_in("optimizer"))
    yield Finding(
        rule="unfused-optimizer",
        share=at_most(saving),
        title=f"{kinds} takes {percent(share.value)} of the step, and its fused implementation is not used.",
        evidence=(
            f"The optimizer's phase takes {seconds} per step: {share_of_step(share)}.",
            *([f"It updates {tensors:,} parameter tensors."] if tensors else []),
            *([f"Memory alone needs {percent(needed)} of the step for it."] if needed > 0 else []),
        ),
        remedy=f"Pass `fused=True` to {kinds}{' in place of `foreach=False`' if loops else ''}.",
        site=unfused[0].site or site_with(profile, "optimizer", "step"),
        levers=levers_for("unfused-optimizer", profile.situation),
    )


def could_be_fused(it: OptimizerFacts) -> bool:
    """Whether it has a fused implementation, and the script chose neither that nor `foreach`."""
    return it.from_torch and it.supports_fused and it.fused is None and not it.foreach


def _needed_seconds(profile: Profile) -> float:
    """What moving the parameters and their state takes at least, at the rate that memory reached in a test; 0 where
    that is not known, or where they may fit into a cache."""
    rate = profile.machine.ceilings.memory_bytes_per_second
    moved = sum(it.parameters * _BYTES_MOVED.get(it.kind, 0) for it in profile.facts.optimizers)
    if not rate or moved < LARGE_BYTES or any(it.dtype != "float32" for it in profile.facts.models):
        return 0.0
    return moved / rate


def _adam(parameters: int = 1_000_000, **fields: bool) -> OptimizerFacts:
    return OptimizerFacts(
        kind="AdamW",
        parameters=parameters,
        learning_rate=1e-3,
        supports_fused=True,
        supports_foreach=True,
        fused=fields.get("fused"),
        foreach=fields.get("foreach"),
        from_torch=fields.get("from_torch", True),
    )


_ON_CPU = run_on(CPU, optimizers=(_adam(),))

fires = {
    "a loop over the parameters on a CPU": with_optimizer(_ON_CPU, 0.02),
    "a loop that the script chooses": with_optimizer(run_on(CPU, optimizers=(_adam(foreach=False),)), 0.02),
    "foreach on a GPU": with_optimizer(run_on(GPU, optimizers=(_adam(),)), 0.01),
    "more than memory explains": with_optimizer(run_on(GPU, optimizers=(_adam(100_000_000),)), 0.01),
}
silent = {
    "nothing was measured": Profile(),
    "it is fused": with_optimizer(run_on(CPU, optimizers=(_adam(fused=True),)), 0.02),
    "the script explicitly disables fused": with_optimizer(run_on(CPU, optimizers=(_adam(fused=False),)), 0.02),
    "the script chose foreach": with_optimizer(run_on(CPU, optimizers=(_adam(foreach=True),)), 0.02),
    "another library's optimizer": with_optimizer(run_on(CPU, optimizers=(_adam(from_torch=False),)), 0.02),
    "a small part of the step": with_optimizer(_ON_CPU, 0.001),
    "memory is the limit in any form": with_optimizer(run_on(GPU, optimizers=(_adam(1_000_000_000),)), 0.0105),
    "no account of the step": msgspec.structs.replace(_ON_CPU, account=Profile().account),
}
