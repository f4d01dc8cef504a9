"""Batches are copied to the device from pageable memory.

## What it is
The batches of the `DataLoader` are in ordinary memory, which the operating system may move. A device cannot read that
by itself.

## Why it is slow
The driver first copies each batch into a pinned buffer of its own, piece by piece, and the host waits meanwhile, also
with `non_blocking=True`. Such copies reach a fraction of the link's rate, and none of them overlaps with computation.

## How to see it
Batches copied from memory that was not pinned, in at least half of the observed steps, while copying to the device
takes a material share of the step. If this machine's rates are known, the cost is the saving of the faster copy,
`copies * (1 - pageable rate / pinned rate)`, and at most all copies, since pinned ones can overlap with computation. If
the time account has no copies (a model that copies inside its forward), the trace's own copies from pageable memory are
taken as an upper bound.

## What to do
Pass `pin_memory=True` to the `DataLoader` and copy with `.to(device, non_blocking=True)`. Tensors that do not come from
a loader can be pinned with `.pin_memory()`.

## When it is fine
Small batches, whose copies take microseconds. Pinned memory is never swapped out: avoid it on a machine that is short
of memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.device_idle import traced_device
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, between, is_material, is_unguarded, phase_share
from hotlap.diagnose.wording import count, duration, levers_for, name, percent, place, size, time_in
from hotlap.evidence import LoaderUse, RunEvidence
from hotlap.records import CallSite, Ceilings, Estimate, Finding, Machine, PhaseAccount, ScriptFacts

title = "Batches are copied from pageable memory"
group: Group = "data"

_NAME = "pageable-copies"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per training loader whose batches are copied unpinned in every step."""
    if not profile.on_accelerator:
        return
    for use in profile.evidence.loaders:
        share = _cost(profile)
        if not is_unguarded(profile, use.pageable_copies) or share is None:
            continue
        yield Finding(
            rule=_NAME,
            share=share,
            title=f"Copying batches from pageable memory costs {_bounded(share)} of the step.",
            evidence=(
                f"{count(use.pageable_copies, 'batch', 'batches')} of {name(use.dataset)} copied unpinned in "
                f"{profile.evidence.observed_steps} observed steps, at {place(use.copy_site)}",
                *_figures(profile),
            ),
            remedy="Pass pin_memory=True to this DataLoader, and copy with .to(device, non_blocking=True).",
            site=use.copy_site,
            levers=levers_for(_NAME),
        )


def _cost(profile: Profile) -> Estimate | None:
    """Return the saving of pinning; None if it is not material."""
    copying = phase_share(profile, "host_to_device")
    rates = profile.machine.ceilings
    pageable, pinned = rates.host_to_device_pageable_bytes_per_second, rates.host_to_device_pinned_bytes_per_second
    if not is_material(copying):
        traced = _traced_share(profile)
        return at_most(traced) if traced >= MATERIAL else None
    if not pageable or not pinned:
        return at_most(copying.value)
    saved = 1 - min(1.0, pageable / pinned)
    share = between(copying.value * saved, copying.low * saved, copying.high)
    return share if is_material(share) else None


def _traced_share(profile: Profile) -> float:
    """Return copies from pageable memory as a share of the traced window."""
    device = traced_device(profile)
    if device is None:
        return 0.0
    rows = [it for it in device.copies if it.direction == "HtoD" and it.memory == "pageable"]
    return sum(it.nanoseconds for it in rows) / max(1, device.time.window_nanoseconds)


def _bounded(share: Estimate) -> str:
    return f"{percent(share.value)}" if share.low > 0 else f"at most {percent(share.value)}"


def _figures(profile: Profile) -> Iterator[str]:
    account, rates = profile.account, profile.machine.ceilings
    if account.seconds_in("host_to_device") > 0:
        yield time_in(account, "host_to_device", "copying to the device")
    pageable, pinned = rates.host_to_device_pageable_bytes_per_second, rates.host_to_device_pinned_bytes_per_second
    if pageable and pinned:
        yield f"this machine copies {size(pageable)}/s from pageable memory and {size(pinned)}/s from pinned memory"
    device = traced_device(profile)
    for row in device.copies if device else ():
        if row.direction == "HtoD" and row.memory in ("pageable", "pinned"):
            yield (
                f"traced from {row.memory} memory: {count(row.copies, 'copy', 'copies')}, {size(row.bytes)}, "
                f"{duration(row.nanoseconds / 1e9)}"
            )


_USE = LoaderUse(
    dataset="Images", pageable_copies=40, copy_site=CallSite(role="copy", file="/home/ada/train.py", line=31, what="to")
)
_RATES = Machine(
    ceilings=Ceilings(host_to_device_pageable_bytes_per_second=6e9, host_to_device_pinned_bytes_per_second=24e9)
)


def _profile(
    *, copying: float = 0.02, use: LoaderUse = _USE, machine: Machine = _RATES, device: str = "cuda"
) -> Profile:
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("host_to_device", copying),
                ("forward", 0.1 - copying),
            ),
        ),
        facts=ScriptFacts(device=device),
        machine=machine,
        evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, loaders=(use,)),
    )


fires = {
    "a fifth of the step, and four times the rate to be had": _profile(),
    "rates that were not measured": _profile(machine=Machine()),
}
silent = {
    "nothing measured": Profile(),
    "copies of 0.5 %": _profile(copying=0.0005),
    "pinned batches": _profile(use=LoaderUse(dataset="Images", blocking_copies=40)),
    "unpinned in one step of forty": _profile(use=LoaderUse(dataset="Images", pageable_copies=1)),
    "pinned memory is no faster here": _profile(
        machine=Machine(
            ceilings=Ceilings(
                host_to_device_pageable_bytes_per_second=12e9, host_to_device_pinned_bytes_per_second=12e9
            )
        )
    ),
    "no accelerator": _profile(device="cpu"),
}
