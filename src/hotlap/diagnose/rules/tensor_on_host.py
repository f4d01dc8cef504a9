"""A tensor is created on the CPU and then copied to the device.

## What it is
`torch.zeros(n).to(device)`, `torch.tensor(values).cuda()` or `torch.randn(...)` without `device=`, in every step.

## Why it is slow
The host fills memory that the device could fill faster. Then it waits for the copy, which reads pageable memory and
runs after all work that was queued before it.

## How to see it
Lines that created a tensor on the CPU and copied it to the device within the same step, in at least half of the
observed steps. The host time of this is an upper bound of the cost.

## What to do
Create it on the device: `torch.zeros(n, device=device)`, `torch.arange(n, device=x.device)`. If it is the same in every
step, create it once, before the loop, or register it as a buffer of the model. Random numbers drawn on the device come
from another generator: other numbers of the same distribution.

## When it is fine
Values that only the host knows, such as numbers read from a file.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import MATERIAL, at_most, is_unguarded, observed_share
from hotlap.diagnose.wording import count, duration, levers_for, percent, place, size
from hotlap.evidence import LoopCall, RunEvidence
from hotlap.records import CallSite, Finding, ScriptFacts

title = "A tensor is created on the CPU and then copied to the device"
group: Group = "host"

_NAME = "tensor-on-host"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding per line that does this in most steps and takes a material time."""
    if not profile.on_accelerator:
        return
    for call in profile.evidence.calls:
        bound = observed_share(profile, call.seconds)
        if call.kind != "tensor-on-host" or call.phase == "outside" or bound < MATERIAL:
            continue
        if not is_unguarded(profile, call.steps):
            continue
        yield Finding(
            rule=_NAME,
            share=at_most(bound),
            title=f"A tensor created on the CPU at {place(call.site)} is copied to the device: at most "
            f"{percent(bound)} of "
            "the step.",
            evidence=(
                f"{count(call.calls, 'tensor')} in {call.steps} of {profile.evidence.observed_steps} observed steps, "
                f"{duration(call.seconds / max(1, call.calls))} and {size(call.bytes / max(1, call.calls))} each",
            ),
            remedy="Create it on the device (device=...), or once before the loop.",
            site=call.site,
            levers=levers_for(_NAME),
        )


_LINE = CallSite(role="copy", file="/home/ada/model.py", line=31)


def _profile(*, seconds: float = 0.2, steps: int = 40, device: str = "cuda") -> Profile:
    call = LoopCall(kind="tensor-on-host", calls=steps, steps=steps, seconds=seconds, bytes=steps << 20, site=_LINE)
    return Profile(
        facts=ScriptFacts(device=device),
        evidence=RunEvidence(observed_steps=40, observed_seconds=4.0, calls=(call,)),
    )


fires = {
    "5 % in every step": _profile(),
    "in half of the steps": _profile(steps=20),
}
silent = {
    "nothing measured": Profile(),
    "one step of ten": _profile(steps=4),
    "1 % of the time": _profile(seconds=0.04),
    "no accelerator": _profile(device="cpu"),
}
