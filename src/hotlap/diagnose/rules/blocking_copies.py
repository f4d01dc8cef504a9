"""The host waits for each copy of a batch, although the batch is pinned.

## What it is
`batch.to(device)` without `non_blocking=True`: the batch is in pinned memory, so the device could copy it by itself,
but the host waits until the copy is done.

## Why it is slow
The copy comes after all work that was queued before it, so the host waits for that work too and no longer runs ahead.
After the copy the device's queue is empty, and the device idles until the next kernels are launched.

## How to see it
Batches in pinned memory that were copied while the host waited, in at least half of the observed steps. If the steps
were traced, the cost is the time that the device idled because of such copies, scaled to an unprofiled step. If there
is no such time, or no trace, the time of the copies themselves is the bound: they can overlap with computation only if
they do not block.

## What to do
Copy with `.to(device, non_blocking=True)`. Work on the same stream is ordered after the copy, so nothing else needs to
change. Do not write into the batch on the host before the device is done with it.

## When it is fine
If the batch is needed on the host right afterwards, or is so small that the copy takes no measurable time.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.device_idle import idle_share
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, is_material, is_unguarded, phase_share
from hotlap.diagnose.wording import count, levers_for, name, percent, place, share_of_step, time_in
from hotlap.evidence import LoaderUse, RunEvidence
from hotlap.records import CallSite, Estimate, Finding, PhaseAccount, ScriptFacts

title = "The host waits for copies of pinned batches"
group: Group = "data"

_NAME = "blocking-copies"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per training loader whose pinned batches are copied blockingly."""
    idle = idle_share(profile, "blocking_copy")
    share = _cost(profile, idle)
    if not profile.on_accelerator or share is None:
        return
    for use in profile.evidence.loaders:
        if is_unguarded(profile, use.blocking_copies):
            yield Finding(
                rule=_NAME,
                share=share,
                title=f"The host waits for every copy of a pinned batch at {place(use.copy_site)}: "
                f"{'' if share.low > 0 else 'at most '}{percent(share.value)} of the step.",
                evidence=(
                    f"{count(use.blocking_copies, 'batch', 'batches')} of {name(use.dataset)} in "
                    f"{profile.evidence.observed_steps} observed steps",
                    *_figures(profile, idle),
                ),
                remedy="Copy with .to(device, non_blocking=True).",
                site=use.copy_site,
                levers=levers_for(_NAME),
            )


def _cost(profile: Profile, idle: Estimate | None) -> Estimate | None:
    """Return the idle time caused by such copies, or the copies as a bound; None if immaterial."""
    if idle is not None and is_material(idle):
        return idle
    copying = phase_share(profile, "host_to_device")
    return at_most(copying.value) if is_material(copying) else None


def _figures(profile: Profile, idle: Estimate | None) -> Iterator[str]:
    account = profile.account
    if account.seconds_in("host_to_device") > 0:
        yield time_in(account, "host_to_device", "copying to the device")
    if idle is not None:
        yield f"the device idled after such copies: {share_of_step(idle)}"


_USE = LoaderUse(
    dataset="Images", blocking_copies=40, copy_site=CallSite(role="copy", file="/home/ada/train.py", line=31, what="to")
)


def _profile(*, copying: float = 0.005, use: LoaderUse = _USE, device: str = "cuda", steps: int = 40) -> Profile:
    return Profile(
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("host_to_device", copying),
                ("forward", 0.1 - copying),
            ),
        ),
        facts=ScriptFacts(device=device),
        evidence=RunEvidence(observed_steps=steps, observed_seconds=steps * 0.1, loaders=(use,)),
    )


fires = {
    "copies of 5 %": _profile(),
    "in half of the steps": _profile(steps=80),
}
silent = {
    "nothing measured": Profile(),
    "copies of 0.3 %": _profile(copying=0.0003),
    "they do not block": _profile(use=LoaderUse(dataset="Images")),
    "in one step of three": _profile(steps=120),
    "no accelerator": _profile(device="cpu"),
}
