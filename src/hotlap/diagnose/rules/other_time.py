"""Much of a step's time is spent outside of data, model and optimizer.

## What it is
The time of the step outside of every phase: training does not wait for a batch, and no forward pass, backward pass or
update runs. It contains collectives that the script calls itself (gathering losses, barriers), waiting for a disk, a
server, a lock or another process, and work in Python.

## Why it is slow
Training stops meanwhile. A rank that gathers a number in every step waits for the slowest rank in every step.

## How to see it
About a hundred samples per second of the training thread's line in the profiled run, in this phase alone; their shares
are scaled to the unmodified step. In a collective, a sleeping thread waits for other ranks or for the network; the rest
is the collective's own work. If the system does not account for sleep, work and waiting cannot be distinguished. DDP's
exchange of gradients is part of backward, and is shown as evidence. `python-overhead` reports work in Python if it can
measure it.

## What to do
Collectives: accumulate on each rank and gather every n-th step, or once per epoch; gather several numbers in one call;
balance the ranks' work. Waiting: do it in another thread or process, or less often.

## When it is fine
If the wait is intended, as with an environment that runs in real time.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import Group
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import NOTABLE, Parts, first_site, hottest, parts_of_other, sampled_in, seconds_of
from hotlap.diagnose.shares import phase_share, scaled
from hotlap.diagnose.wording import levers_for, percent
from hotlap.evidence import LineSamples, RunEvidence, SampledLine
from hotlap.records import CallSite, Estimate, Finding, ModelFacts, PhaseAccount, ScriptFacts

title = "Much of a step's time is spent outside of data, model and optimizer"
group: Group = "host"

_NAME = "other-time"
_WORTH_A_LINE = 0.02
_BACKWARD = "_engine_run_backward"


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding, for the largest part, if such time is a tenth of the step or more."""
    parts = parts_of_other(profile)
    other = phase_share(profile, "other")
    if parts is None or parts.seconds <= 0 or other.value < NOTABLE:
        return
    candidates = [
        (seconds_of(parts.collectives), _collectives),
        (0.0 if profile.on_accelerator else seconds_of(parts.asleep), _waits),  # there `host-sync` reports it
        (seconds_of(parts.work) if _python_is_unseen(profile) else 0.0, _work),
    ]
    seconds, made = max(candidates, key=lambda it: it[0])
    share = scaled(other, seconds / parts.seconds)
    if share.value >= NOTABLE:
        yield made(profile, other, parts, share)


def _python_is_unseen(profile: Profile) -> bool:
    """Whether `python-overhead` cannot judge this script, so work is reported here."""
    return profile.facts.processes > 1 or any(it.compiled for it in profile.facts.models)


def _collectives(profile: Profile, other: Estimate, parts: Parts, share: Estimate) -> Finding:
    asleep = sum(it.asleep_seconds for it in parts.collectives) / parts.seconds * other.value
    slept = f"of these the thread slept for {percent(asleep)} of the step, waiting for other ranks or the network"
    return _finding(
        parts.collectives,
        share,
        f"Collectives that the script calls itself take {percent(share.value)} of the step.",
        (
            *_summary(profile, other, parts),
            *((slept,) if profile.evidence.sampled.knows_sleep else ()),
            *_in_backward(profile),
            *hottest(parts.collectives, "it"),
        ),
        "Accumulate on each rank, and gather every n-th step or once per epoch; gather several numbers in one call; "
        "check whether one rank is slower than the others.",
    )


def _waits(profile: Profile, other: Estimate, parts: Parts, share: Estimate) -> Finding:
    return _finding(
        parts.asleep,
        share,
        f"For {percent(share.value)} of the step the training thread sleeps, waiting for neither data nor a model.",
        (*_summary(profile, other, parts), *_in_backward(profile), *hottest(parts.asleep, "it")),
        "Do what it waits for (a disk, a server, another process) in a thread of its own, or less often.",
    )


def _work(profile: Profile, other: Estimate, parts: Parts, share: Estimate) -> Finding:
    return _finding(
        parts.work,
        share,
        f"{'Work' if profile.evidence.sampled.knows_sleep else 'Work or waiting'} outside of data, model and optimizer "
        f"takes {percent(share.value)} of the step.",
        (*_summary(profile, other, parts), *_in_backward(profile), *hottest(parts.work, "it")),
        "Check what these lines compute: do it every n-th step, on whole tensors, or not at all.",
    )


def _finding(
    lines: list[SampledLine], share: Estimate, sentence: str, evidence: tuple[str, ...], remedy: str
) -> Finding:
    return Finding(
        rule=_NAME,
        share=share,
        title=sentence,
        evidence=evidence,
        remedy=remedy,
        site=first_site(lines),
        levers=levers_for(_NAME),
    )


def _summary(profile: Profile, other: Estimate, parts: Parts) -> Iterator[str]:
    """If the system does not account for sleep, the thread may have waited wherever it was sampled."""
    amounts = (
        ("in collectives", seconds_of(parts.collectives)),
        ("asleep elsewhere", seconds_of(parts.asleep)),
        ("at work" if profile.evidence.sampled.knows_sleep else "at work or asleep", seconds_of(parts.work)),
    )
    shown = [f"{percent(it / parts.seconds * other.value)} {what}" for what, it in amounts if it > 0]
    yield f"other: {percent(other.value)} of the step; {', '.join(shown)}"


def _in_backward(profile: Profile) -> Iterator[str]:
    """Yield how long the thread slept in backward, where DDP exchanges gradients without Python."""
    if profile.facts.processes < 2 or profile.on_accelerator:
        return
    lines = [it for it in sampled_in(profile, "backward") if it.innermost.endswith(_BACKWARD)]
    whole = seconds_of(sampled_in(profile, "backward"))
    if whole <= 0:
        return
    asleep = sum(it.asleep_seconds for it in lines) / whole * phase_share(profile, "backward").value
    if asleep >= _WORTH_A_LINE:
        yield f"in backward it slept for {percent(asleep)} of the step, mostly waiting for the other ranks' gradients"


_LINE = CallSite(role="call", file="/home/ada/train.py", line=40)
_OTHER_LINE = CallSite(role="call", file="/home/ada/train.py", line=44)
_GATHER = "accelerate.accelerator.Accelerator.gather"


def _sampled(seconds: float, asleep: float = 0.0, *, site: CallSite = _LINE, called: str = "") -> SampledLine:
    return SampledLine(
        phase="other",
        samples=round(100 * seconds),
        seconds=seconds,
        asleep_seconds=asleep,
        site=site,
        called=called,
        collective=called == _GATHER,
    )


def _profile(*lines: SampledLine, other: float = 0.5, processes: int = 1, compiled: bool = False) -> Profile:
    """A step of 100 ms, of which the part ``other`` is no phase."""
    backward = SampledLine(
        phase="backward", samples=200, seconds=2.0, asleep_seconds=1.0, innermost="torch.autograd.graph" + _BACKWARD
    )
    return Profile(
        facts=ScriptFacts(processes=processes, models=(ModelFacts(kind="Net", parameters=10, compiled=compiled),)),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("backward", 0.1 * (1 - other)),
                ("other", 0.1 * other),
            ),
        ),
        evidence=RunEvidence(
            observed_steps=40, observed_seconds=4.0, sampled=LineSamples(knows_sleep=True, lines=(*lines, backward))
        ),
    )


fires = {
    "a loss is gathered in every step": _profile(
        _sampled(1.6, 1.2, called=_GATHER), _sampled(0.4, site=_OTHER_LINE), processes=2
    ),
    "a file on a network drive is read": _profile(_sampled(1.5, 1.4, called="shutil.copy"), _sampled(0.5)),
    "two ranks at work": _profile(_sampled(1.8, 0.1), processes=2),
    "a compiled model, which python-overhead does not cover": _profile(_sampled(1.8, 0.1), compiled=True),
}
silent = {
    "nothing measured": Profile(),
    "Python at work, which python-overhead covers": _profile(_sampled(1.8, 0.1)),
    "a twentieth of the step": _profile(_sampled(1.6, 1.2, called=_GATHER), other=0.05, processes=2),
    "hardly any samples": _profile(_sampled(0.1, called=_GATHER), processes=2),
    "nothing was sampled": msgspec.structs.replace(
        _profile(_sampled(1.8, called=_GATHER), processes=2), evidence=RunEvidence()
    ),
}
