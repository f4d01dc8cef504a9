"""A line of the training loop waits for the device.

## What it is
`loss.item()`, `print(loss)`, `if loss > limit:`, `.cpu()`, `mask.nonzero()` or `torch.cuda.synchronize()` in every
step: the host needs a value that the device has not computed yet, and waits until it has.

## Why it is slow
Normally the host runs ahead and queues the next kernels while the device works. A wait removes that lead: when the host
continues, the queue is empty, and the device idles until the next kernels arrive. If the host is slow at launching
kernels, the lead is lost for the rest of the step.

## How to see it
Each line that waited for a device in at least half of the observed steps, with the time that it waited. That time is an
upper bound of the line's cost. If the steps were traced, the time that the device idled after such waits is divided
among the lines in proportion to their waits; if the device had work throughout, the wait cost nothing, and this rule is
silent. It is also silent on a CPU, where nothing runs ahead: there `reads-in-every-step` reports the lines.

## What to do
Keep the tensor itself (`losses.append(loss.detach())`) and read it every hundredth step, or at the end of the epoch.
Replace truth tests by `torch.where`, boolean indexing by a product with the mask. Remove `synchronize()`; it is only
needed for timing.

## When it is fine
Behind an `if` that is true in every hundredth step, in evaluation, or if a decision really depends on the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.device_idle import idle_share
from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, between, is_material, is_unguarded, observed_share, scaled
from hotlap.diagnose.wording import count, duration, levers_for, percent, place, share_of_step
from hotlap.evidence import HostSync, RunEvidence, SyncKind
from hotlap.records import PHASES, CallSite, Estimate, Finding, PhaseAccount, ScriptFacts
from hotlap.traces.records import Breakdown

title = "A line of the training loop waits for the device"
group: Group = "host"

_NAME = "host-sync"

CALLS: dict[SyncKind, str] = {
    "item": "`.item()`",
    "cpu": "`.cpu()`",
    "numpy": "`.numpy()`",
    "tolist": "`.tolist()`",
    "bool": "A truth test of a tensor",
    "nonzero": "`nonzero()` or a boolean index",
    "print": "Printing a tensor",
    "synchronize": "`synchronize()`",
    "copy-to-device": "A blocking copy to the device",
}
"""The title and remedy of each kind of call."""

_READ_SELDOM = "Keep the detached tensor and read it every hundredth step, or at the end of the epoch."
_REMEDIES: dict[SyncKind, str] = {
    "item": _READ_SELDOM,
    "cpu": _READ_SELDOM,
    "numpy": _READ_SELDOM,
    "tolist": _READ_SELDOM,
    "bool": "Decide on the device with torch.where, or test every hundredth step only.",
    "nonzero": "Multiply by the mask, or use torch.where: both keep the size, so the host need not know it.",
    "print": "Print every hundredth step.",
    "synchronize": "Remove it: torch orders the work automatically, and only timing needs it.",
    "copy-to-device": "Pin the source (pin_memory) and copy with non_blocking=True, or make the tensor on the device.",
}


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per line that waits for a busy device in most steps.

    A line is not reported if the device had work meanwhile.
    """
    idle = idle_share(profile, "host_sync")
    waits = [it for it in profile.evidence.syncs if it.on_device and it.phase != "outside"]
    waited = sum(it.seconds for it in waits)
    for sync in waits:
        if sync.phase == "optimizer" or not is_unguarded(profile, sync.steps) or _is_reported_elsewhere(profile, sync):
            continue
        bound = observed_share(profile, sync.seconds)
        share = at_most(bound) if idle is None else _its_part(idle, sync.seconds / waited if waited else 0.0, bound)
        if bound >= MATERIAL and (idle is None or is_material(share)):
            yield _finding(profile, sync, share, idle)


def _its_part(idle: Estimate, part: float, bound: float) -> Estimate:
    """Return a line's part of the idle time after waits.

    Later gaps that a lead would have filled count up to the time it waited.
    """
    own = scaled(idle, part)
    return between(min(own.value, bound), min(own.low, bound), bound)


def _is_reported_elsewhere(profile: Profile, sync: HostSync) -> bool:
    """Copies of batches, and of tensors that are created on the host, have their own rules."""
    if sync.kind != "copy-to-device" or sync.site is None:
        return False
    batches = [use.copy_site for use in profile.evidence.loaders]
    made_here = [call.site for call in profile.evidence.calls if call.kind == "tensor-on-host"]
    lines = {(it.file, it.line) for it in (*batches, *made_here) if it}
    return (sync.site.file, sync.site.line) in lines


def _finding(profile: Profile, sync: HostSync, share: Estimate, idle: Estimate | None) -> Finding:
    cost = f"at most {percent(share.value)}" if idle is None else percent(share.value)
    evidence = [
        f"{count(sync.calls, 'call')} in {sync.steps} of {profile.evidence.observed_steps} observed steps, "
        f"{duration(sync.seconds / max(1, sync.calls))} each",
        f"waiting here: {percent(observed_share(profile, sync.seconds))} of the observed time, "
        f"{PHASES[sync.phase].during}",
    ]
    if idle is not None:
        evidence.append(f"the device idled after waits of the host: {share_of_step(idle)}")
    return Finding(
        rule=_NAME,
        share=share,
        title=f"{CALLS[sync.kind]} at {place(sync.site)} makes the host wait for the device: {cost} of the step.",
        evidence=tuple(evidence),
        remedy=_REMEDIES[sync.kind],
        site=sync.site,
        levers=levers_for(_NAME),
    )


_ITEM = HostSync(
    kind="item",
    calls=40,
    steps=40,
    seconds=0.8,
    on_device=True,
    site=CallSite(role="step", file="/home/ada/train.py", line=44),
)
_item = partial(msgspec.structs.replace, _ITEM)


def _profile(*syncs: HostSync, traces: tuple[Breakdown, ...] = (), device: str = "cuda") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        account=PhaseAccount(wall=STEP_SECONDS, phases=(("forward", STEP_SECONDS),)),
        evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, syncs=syncs),
        breakdowns=traces,
    )


fires = {
    "loss.item() in every step": _profile(_item()),
    "a truth test in half of the steps": _profile(_item(kind="bool", steps=20)),
    "traced, and the device idled for it": _profile(_item(), traces=(trace_of(idle_for("host_sync", 8.0)),)),
}
silent = {
    "nothing measured": Profile(),
    "behind an if: one step of ten": _profile(_item(calls=4, steps=4)),
    "on a CPU": _profile(_item(on_device=False), device="cpu"),
    "torch's own wait inside the optimizer": _profile(_item(phase="optimizer")),
    "in evaluation": _profile(_item(phase="outside")),
    "a wait of 1 %": _profile(_item(seconds=0.04)),
    "traced, and the device had work all the while": _profile(
        _item(), traces=(trace_of(idle_for("launch_bound", 8.0)),)
    ),
}
