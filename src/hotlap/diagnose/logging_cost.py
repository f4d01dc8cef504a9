"""Printing and logging take a visible part of the step.

## What it is
`print`, a logger, or a progress bar's text in every step of the training loop.

## Why it is slow
Formatting and writing are work of the host, and a terminal, a pipe or a network drive may make it wait. On a device the
kernels of the next step are launched later by that time; whether the device notices depends on its lead.

## How to see it
The time that such calls of the loop took in the observed steps, all lines together. Above 1 % it is told, since nothing
is learnt from it. Where a tensor on a device was printed, the wait for the device is not part of it: that is told by
`host-sync`. On an accelerator the time is an upper bound.

## What to do
Log every fiftieth step, collect numbers and write them together, or leave the writing to another thread
(`logging.handlers.QueueHandler`).

## When it is fine
Steps so long that a line of text does not show; then this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, exactly, observed_share
from hotlap.diagnose.wording import count, duration, levers_for, percent, place
from hotlap.evidence import HostSync, LoopCall, RunEvidence
from hotlap.records import CallSite, Finding, ScriptFacts

title = "Printing and logging take a visible part of the step"
group: Group = "host"

_NAME = "logging-cost"
_VISIBLE = 0.01
_SHOWN = 3


def check(profile: Profile) -> Iterator[Finding]:
    """One finding, at the dearest line, where all lines together take more than 1 % of the observed steps."""
    lines = [it for it in profile.evidence.calls if it.kind in ("print", "logging") and it.phase != "outside"]
    total = observed_share(profile, sum(it.seconds for it in lines))
    if total <= _VISIBLE:
        return
    lines.sort(key=lambda it: -it.seconds)
    on_device = profile.on_accelerator
    yield Finding(
        rule=_NAME,
        share=at_most(total) if on_device else exactly(total),
        title=f"Printing and logging take {'at most ' if on_device else ''}{percent(total)} of the step.",
        evidence=tuple(
            f"{place(it.site)}: {count(it.calls, 'call')} in {it.steps} of {profile.evidence.observed_steps} observed "
            f"steps, {duration(it.seconds / max(1, it.calls))} each"
            for it in lines[:_SHOWN]
        ),
        remedy="Log every fiftieth step, or collect the numbers and write them together.",
        site=lines[0].site,
        levers=levers_for(_NAME),
    )


_LINE = CallSite(role="step", file="/home/ada/train.py", line=48)
_OTHER_LINE = CallSite(role="step", file="/home/ada/train.py", line=60)


def _profile(*calls: LoopCall, device: str = "cpu") -> Profile:
    return Profile(
        facts=ScriptFacts(device=device),
        evidence=RunEvidence(observed_steps=40, observed_seconds=1.0, calls=calls),
    )


def _print(seconds: float, site: CallSite = _LINE) -> LoopCall:
    return LoopCall(kind="print", calls=40, steps=40, seconds=seconds, site=site)


fires = {
    "5 % in one line": _profile(_print(0.05)),
    "two lines of 0.8 % each, on a device": _profile(_print(0.008), _print(0.008, _OTHER_LINE), device="cuda"),
}
silent = {
    "nothing measured": Profile(),
    "half a percent": _profile(_print(0.005)),
    "in evaluation": _profile(LoopCall(kind="logging", phase="outside", calls=40, steps=40, seconds=0.2, site=_LINE)),
    "a wait for the device is none of it": Profile(
        facts=ScriptFacts(device="cuda"),
        evidence=RunEvidence(
            observed_steps=40,
            observed_seconds=1.0,
            calls=(_print(0.005),),
            syncs=(HostSync(kind="print", calls=40, steps=40, seconds=0.2, on_device=True, site=_LINE),),
        ),
    ),
}
