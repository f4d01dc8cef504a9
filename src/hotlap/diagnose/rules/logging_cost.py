"""Printing and logging take a visible part of the step.

## What it is
`print`, a logger, TensorBoard, an experiment tracker, a progress bar's text, or a table or file that is written in
every step of the training loop.

## Why it is slow
Formatting and writing take host time, and a terminal, a pipe, a server or a network drive may make the host wait. With
a device, the kernels of the next step are launched later by that time; whether the device idles depends on how much
work is queued.

## How to see it
The time of such calls in the observed steps, for all lines together: calls of `print`, `logging`, TensorBoard, tqdm,
pandas, `csv.DictWriter`, `json.dump` and `os.fsync` are timed individually, and writes of files and `csv.writer` are
sampled. Reported above 1 %. If a tensor on a device was printed, `host-sync` reports the wait for the device. On an
accelerator the time is an upper bound. W&B and MLflow are disabled while hotlap runs the script, so the cost of their
calls in your own runs is unknown: if one is called in most steps, there is a hint without a figure.

## What to do
Log every fiftieth step, collect numbers and write them together, or leave the writing to another thread
(`logging.handlers.QueueHandler`).

## When it is fine
If steps are so long that logging takes a negligible share; then this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.host_lines import (
    REPORTING,
    reporting_calls,
    reporting_lines_share,
    reporting_share,
    writing_lines,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, exactly, is_unguarded
from hotlap.diagnose.wording import count, duration, levers_for, percent, place
from hotlap.evidence import HostSync, LineSamples, LoopCall, LoopCallKind, RunEvidence, SampledLine
from hotlap.records import CallSite, Finding, ScriptFacts

title = "Printing and logging take a visible part of the step"
group: Group = "host"

_NAME = "logging-cost"
_VISIBLE = 0.01
_CLEARLY_MORE = 1.25
_SHOWN = 3
_REMEDY = "Log every fiftieth step, or collect the numbers and write them together."


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding at the costliest line if all lines together take more than 1 %.

    Otherwise yield a hint for each line that calls a disabled tracker in most steps.
    """
    share = reporting_share(profile)
    if share.value > _VISIBLE and share.low > 0:
        yield _cost(profile)
    else:
        calls = [it for it in reporting_calls(profile) if it.kind == "tracker"]
        yield from (_unpriced(profile, it) for it in calls if is_unguarded(profile, it.steps))


def _cost(profile: Profile) -> Finding:
    share, on_device = reporting_share(profile), profile.on_accelerator
    calls, writing = reporting_calls(profile), writing_lines(profile)
    lines = [(it.seconds, it.site, _counted(profile, it)) for it in calls]
    lines += [(it.seconds, it.site, it.in_words(profile)) for it in writing]
    lines.sort(key=lambda it: -it[0])
    silenced = any(it.kind == "tracker" for it in calls)
    return Finding(
        rule=_NAME,
        share=at_most(share.high) if on_device else share,
        title=f"Printing and logging take {'at most ' if on_device else ''}"
        f"{percent(share.high if on_device else share.value)} of the step.",
        evidence=(
            *(text for _, _, text in lines[:_SHOWN]),
            *_with_preparation(profile),
            *((_SILENCED,) if silenced else ()),
        ),
        remedy=_REMEDY,
        site=lines[0][1],
        levers=levers_for(_NAME),
    )


def _with_preparation(profile: Profile) -> Iterator[str]:
    """Yield the total of such lines if it is clearly more than their calls."""
    whole = reporting_lines_share(profile, with_operators=True)
    if whole >= _CLEARLY_MORE * reporting_share(profile).value:
        share = percent(whole)
        yield f"Including the arguments that they prepare, these lines take {share} of the observed steps (sampled)."


def _counted(profile: Profile, call: LoopCall) -> str:
    return (
        f"{place(call.site)}: {REPORTING[call.kind]}, {count(call.calls, 'call')} in {call.steps} of "
        f"{profile.evidence.observed_steps} observed steps, {duration(call.seconds / max(1, call.calls))} each"
    )


_SILENCED = "Experiment trackers are disabled in trials: what they send or store is not included."


def _unpriced(profile: Profile, call: LoopCall) -> Finding:
    observed = profile.evidence.observed_steps
    return Finding(
        rule=_NAME,
        kind="hint",
        share=exactly(0.0),
        title=f"{place(call.site)} calls an experiment tracker in {call.steps} of {observed} observed steps.",
        evidence=(
            f"{count(call.calls, 'call')} in {call.steps} steps",
            "Trackers are disabled in trials, so the cost of a call in your own runs was not measured.",
        ),
        remedy="Time one call in your own run; if it is slow, log every fiftieth step.",
        site=call.site,
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


def _call(kind: LoopCallKind, seconds: float, steps: int = 40) -> LoopCall:
    return LoopCall(kind=kind, calls=steps, steps=steps, seconds=seconds, site=_LINE)


def _sampled(native: str, samples: int, *calls: LoopCall) -> Profile:
    """A line that was met that often, in samples of ten milliseconds of eight seconds."""
    line = SampledLine(phase="other", samples=samples, seconds=0.01 * samples, site=_LINE, native=native)
    samples_of_lines = LineSamples(interval_seconds=0.01, samples=800, lines=(line,))
    return Profile(evidence=RunEvidence(observed_steps=40, observed_seconds=8.0, calls=calls, sampled=samples_of_lines))


fires = {
    "a scalar for TensorBoard": _profile(_call("tensorboard", 0.05)),
    "a progress bar's text": _profile(_call("progress-bar", 0.03)),
    "a table that is written as a whole": _profile(_call("file-write", 0.3)),
    "a file's own write, sampled": _sampled(".write", 40),
    "a silenced tracker in every step": _profile(_call("tracker", 1e-5)),
    "5 % in one line": _profile(_print(0.05)),
    "two lines of 0.8 % each, on a device": _profile(_print(0.008), _print(0.008, _OTHER_LINE), device="cuda"),
}
silent = {
    "nothing measured": Profile(),
    "half a percent": _profile(_print(0.005)),
    "a silenced tracker in every tenth step": _profile(_call("tracker", 1e-5, steps=4)),
    "a write that was met five times": _sampled(".write", 5),
    "a product that was met often": _sampled("torch.mm", 400),
    "in evaluation": _profile(LoopCall(kind="logging", phase="outside", calls=40, steps=40, seconds=0.2, site=_LINE)),
    "a wait for the device is not counted": Profile(
        facts=ScriptFacts(device="cuda"),
        evidence=RunEvidence(
            observed_steps=40,
            observed_seconds=1.0,
            calls=(_print(0.005),),
            syncs=(HostSync(kind="print", calls=40, steps=40, seconds=0.2, on_device=True, site=_LINE),),
        ),
    ),
}
