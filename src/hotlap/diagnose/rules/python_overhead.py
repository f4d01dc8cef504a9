"""Python, not torch, takes a large part of the step.

## What it is
Time of the step in which no operator of torch runs and training waits for neither a batch nor a device: loops over
samples or parameters in Python, metrics computed on lists, bookkeeping, and the overhead of calling many small
functions.

## Why it is slow
Python runs on one core, at about ten million simple operations per second. On a CPU all other cores idle meanwhile. On
an accelerator the queue of kernels shrinks, and when it is empty, the device idles.

## How to see it
On a CPU: the unprofiled step, minus its data wait and its backward pass (which runs without Python, and frees memory
between operators), minus the time that the traced steps spent inside other operators. Tracing makes operators longer
and never shorter, so at least the rest was spent outside of them; the low end is 6 % of the step lower, since the two
come from different runs. If the traced step takes more than twice as long, as one with thousands of tiny operators
does, the share is that of each phase's samples in Python, if that is more, up to the time that the traced steps spent
in Python. Lines that print or log, and their preparation, are left to `logging-cost`. The profiler does not see a
compiled model's kernels as operators: then this rule is silent. On an accelerator: the time that the device idled while
the host was in no operator and no call, between kernels or between steps, scaled to an unprofiled step.

If other processes disturbed the measurement, sampled lines must show half of it as well, since time lost to other
processes is outside of operators too.

The lines are sampled while the host is in none of torch's functions and neither reports nor writes. If a step calls
very many small operators, `small-operators` reports that, and both are merged into one finding.

Every training loop has a few percent of it, which are hard to remove: this rule reports it from 10 % on; on a CPU,
where tracing itself and freeing large tensors look alike, from 20 % on; and from 30 % on if only samples show it.

## What to do
Replace loops over samples, tokens or parameters by one operation on the whole tensor; compute metrics every n-th step.
Compiling the model helps only with Python in its forward pass. If the cause is many small operators, use `foreach` or
fused optimizers, a compiled model, or a larger batch, which needs the same number of calls for more samples.

## When it is fine
Small models, whose operators take microseconds: there `torch.compile` is the only remedy. Work that must happen in
Python, such as a simulated environment.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hotlap.diagnose.api import USUAL_GROUND, Group
from hotlap.diagnose.device_idle import idle_cause, idle_share, in_operators
from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, trace_of
from hotlap.diagnose.host_lines import python_lines, python_share, reporting_lines_share, reporting_share
from hotlap.diagnose.operators import profiled_steps
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.sampled import waiting_share
from hotlap.diagnose.shares import between, is_material, observed_share, scaled
from hotlap.diagnose.wording import duration, levers_for, name, percent, share_of_step
from hotlap.evidence import LineSamples, LoopCall, RunEvidence, SampledLine, Window
from hotlap.records import CallSite, Estimate, Finding, ModelFacts, PhaseAccount, ScriptFacts
from hotlap.traces.records import Breakdown, Cause, HostTime

title = "Python takes a large part of the step"
group: Group = "host"

_NAME = "python-overhead"
_NOTABLE, _NOTABLE_ON_CPU, _NOTABLE_BY_SAMPLES = 0.1, 0.2, 0.3
_LAUNCH_NOISE = 0.06
_DISTORTED = 2.0
"""If a traced step takes this many times as long as an unmodified one, its time within operators means little."""

_WORTH_A_WORD = 0.005
_CAUSES: tuple[Cause, ...] = ("launch_bound", "between_steps")
_SHOWN = 3
_MOST = 0.5


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if a tenth of the step or more is spent in no operator."""
    if any(model.compiled for model in profile.facts.models):
        return
    if profile.on_accelerator:
        yield from _on_accelerator(profile)
    elif profile.host_time is not None and profile.account.wall > 0 and profile.facts.processes == 1:
        # With several processes on a CPU, time outside of operators may also be waiting for the others.
        yield from _on_cpu(profile, profile.host_time)


def _on_cpu(profile: Profile, host: HostTime) -> Iterator[Finding]:
    window = profile.evidence.window
    if window is None or window.steps < 1 or any(it.unreliable for it in profile.breakdowns[:1]):
        return
    wall, elsewhere = (
        profile.account.wall,
        profile.account.seconds_in("data_wait") + profile.account.seconds_in("backward"),
    )
    operators = _outside_backward(profile, host) / 1e9 / window.steps
    named = max(reporting_share(profile).value, reporting_lines_share(profile))
    logging = (f"printing and logging, {percent(named)} of it, are not counted",) if named >= _WORTH_A_WORD else ()
    sampled = python_share(profile)
    share = _outside_operators(profile, host, operators, elsewhere, named)
    title = f"In {percent(share.value)} of the step no operator of torch runs, and training waits for nothing."
    # Tracing makes small operators many times as long, so that they leave too little of the step, or nothing.
    by_samples = host.step_nanoseconds / 1e9 / window.steps > _DISTORTED * wall and sampled.value > share.value
    if by_samples or operators > wall - elsewhere:
        by_samples, share = True, _no_more_than_traced(profile, host, sampled)
        title = f"Lines in Python take {percent(share.value)} of the step, by sampling."
    # Time that the step lost to other programs is outside of operators, as Python is.
    in_doubt = (profile.was_disturbed(USUAL_GROUND) or by_samples) and not _is_shown(profile, share)
    if share.value >= (_NOTABLE_BY_SAMPLES if by_samples else _NOTABLE_ON_CPU) and is_material(share) and not in_doubt:
        yield _finding(
            profile,
            share,
            title=title,
            evidence=(
                f"an unprofiled step: {duration(wall)}, of which {duration(elsewhere)} are data wait and backward",
                f"a traced step: {duration(host.step_nanoseconds / 1e9 / window.steps)}, {duration(operators)} of it "
                "inside operators outside backward",
                *logging,
            ),
        )


def _outside_operators(profile: Profile, host: HostTime, operators: float, elsewhere: float, named: float) -> Estimate:
    """Return the rest of an unmodified step besides traced operators and other known time.

    That is time spent ``elsewhere`` (seconds per step) or ``named`` by other rules (a share).
    """
    wall = profile.account.wall
    # Tracing makes Python slower, so its part of the traced step bounds its part of the untouched one: where that took
    # longer for another reason, as on a busy machine, the difference is not due to Python.
    most = host.python_nanoseconds / host.step_nanoseconds if host.step_nanoseconds else 0.0
    value = min((wall - elsewhere - operators) / wall, most) - named
    # Mere waiting has its own rule: `other-time`.
    value -= waiting_share(profile)
    traced = host.python_nanoseconds / 1e9 / profiled_steps(profile)
    return between(value, value - _LAUNCH_NOISE, max(value, min(traced, wall - elsewhere) / wall - named))


def _no_more_than_traced(profile: Profile, host: HostTime, sampled: Estimate) -> Estimate:
    """Return the sampled share, limited to the time that the traced steps spent in Python.

    Tracing makes that time longer, not shorter, while sampling cannot distinguish a line that waits for the interpreter
    lock from one that works.
    """
    most = host.python_nanoseconds / 1e9 / profiled_steps(profile) / profile.account.wall
    return between(min(sampled.value, most), min(sampled.low, most), min(sampled.high, most))


def _is_shown(profile: Profile, share: Estimate) -> bool:
    """Whether sampled lines in Python account for half of it: other processes slow down all lines alike."""
    return observed_share(profile, sum(it.seconds for it in python_lines(profile))) >= _MOST * share.value


def _outside_backward(profile: Profile, host: HostTime) -> int:
    """Return nanoseconds in operators, without those of the backward pass if its time is known."""
    return host.operator_nanoseconds - (host.backward_nanoseconds if profile.account.seconds_in("backward") > 0 else 0)


def _on_accelerator(profile: Profile) -> Iterator[Finding]:
    parts = [it for it in (_python_part(profile, cause) for cause in _CAUSES) if it is not None]
    share = between(sum(it.value for it in parts), sum(it.low for it in parts), sum(it.high for it in parts))
    if share.value >= _NOTABLE and is_material(share):
        yield _finding(
            profile,
            share,
            title=f"The device idles {percent(share.value)} of the step while the host runs Python.",
            evidence=(f"idle while the host was in no operator: {share_of_step(share)}", *_places(profile)),
        )


def _python_part(profile: Profile, which: Cause) -> Estimate | None:
    cause, idle = idle_cause(profile, which), idle_share(profile, which)
    return scaled(idle, 1 - in_operators(cause)) if cause is not None and idle is not None else None


def _places(profile: Profile) -> Iterator[str]:
    """Yield the user's lines that the trace shows in such gaps."""
    for cause in filter(None, (idle_cause(profile, it) for it in _CAUSES)):
        for it in [it for it in cause.evidence if it.role == "place"][:_SHOWN]:
            yield f"in such gaps the host was at {name(it.name)}: {duration(it.nanoseconds / 1e9)}"


def _finding(profile: Profile, share: Estimate, *, title: str, evidence: tuple[str, ...]) -> Finding:
    """Build the finding, with the costliest line if the samples account for half of it."""
    lines = python_lines(profile)
    seconds = sum(it.seconds for it in lines)
    named = _is_shown(profile, share)
    if named:
        in_model = sum(it.model_seconds for it in lines) >= _MOST * seconds
    else:
        in_model = profile.account.seconds_in("other") < _MOST * share.value * profile.account.wall
    return Finding(
        rule=_NAME,
        share=share,
        title=title,
        evidence=(*evidence, *(it.in_words(profile) for it in lines[:_SHOWN])),
        remedy="Replace loops in Python over samples, tokens or parameters by operations on whole tensors"
        f"{', or compile the model' if in_model else ''}.",
        site=lines[0].site if named else None,
        levers=levers_for(_NAME) if in_model else (),
    )


_STEPS = 10
_PLACE = CallSite(role="call", file="/home/ada/train.py", line=20)
_PRINTED = SampledLine(phase="other", samples=130, seconds=1.3, native=".format", site=_PLACE)


def _on_a_cpu(
    operators: float,
    *,
    compiled: bool = False,
    data_wait: float = 0.0,
    traced_step: float = 130.0,
    processes: int = 1,
    backward: tuple[float, float] = (0.0, 0.0),
    printing: float = 0.0,
) -> Profile:
    """A step of 100 ms, of which the traced one, as a rule longer, spends so many milliseconds in operators;
    ``backward`` are the milliseconds of the backward pass, and of its operators."""
    step, inside = round(traced_step * 1e6 * _STEPS), round(operators * 1e6 * _STEPS)
    return Profile(
        facts=ScriptFacts(processes=processes, models=(ModelFacts(kind="Net", parameters=10, compiled=compiled),)),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", data_wait),
                ("forward", 0.1 - data_wait - backward[0] / 1e3),
                ("backward", backward[0] / 1e3),
            ),
        ),
        evidence=RunEvidence(
            observed_steps=40,
            observed_seconds=4.0,
            calls=(LoopCall(kind="print", calls=40, steps=40, seconds=4.0 * printing, site=_PLACE),)
            if printing
            else (),
            window=Window(first_step=30, steps=_STEPS, wall_seconds=1.3, trace_path="trace.json"),
        ),
        host_time=HostTime(
            step_nanoseconds=step,
            operator_nanoseconds=inside,
            loader_nanoseconds=0,
            sync_nanoseconds=0,
            python_nanoseconds=step - inside,
            backward_nanoseconds=round(backward[1] * 1e6 * _STEPS),
        ),
    )


def _on_a_device(trace: Breakdown) -> Profile:
    return Profile(
        facts=ScriptFacts(device="cuda"),
        account=PhaseAccount(wall=STEP_SECONDS, phases=(("forward", STEP_SECONDS),)),
        breakdowns=(trace,),
    )


def _sampled(profile: Profile, *lines: SampledLine) -> Profile:
    """The same with sampled lines."""
    samples = LineSamples(interval_seconds=0.01, samples=400, lines=lines)
    return msgspec.structs.replace(profile, evidence=msgspec.structs.replace(profile.evidence, sampled=samples))


_LOOP = SampledLine(
    phase="other",
    samples=150,
    seconds=1.5,
    native=".get",
    site=CallSite(role="call", file="/home/ada/train.py", line=14),
)


def _reading(native: str, traced_operators: float = 250.0) -> Profile:
    """Seven tenths of the step are no phase; nearly all of that is spent in one line, whose operators are many times as
    long in the traced step."""
    profile = _on_a_cpu(traced_operators, traced_step=400.0)
    account = profile.account.with_seconds(("forward", 0.03), ("other", 0.07))
    lines = (
        msgspec.structs.replace(_LOOP, seconds=2.6, native=native),
        SampledLine(phase="other", samples=20, seconds=0.2, called="torch.nn.functional.cross_entropy"),
    )
    return _sampled(msgspec.structs.replace(profile, account=account), *lines)


def _sleeping(profile: Profile) -> Profile:
    """The same where three tenths of the step are no phase, and the training thread sleeps then."""
    account = profile.account.with_seconds(("forward", profile.account.seconds_in("forward") - 0.03), ("other", 0.03))
    slept = SampledLine(phase="other", samples=120, seconds=1.2, asleep_seconds=1.2, called="time.sleep")
    evidence = msgspec.structs.replace(profile.evidence, sampled=LineSamples(lines=(slept,), knows_sleep=True))
    return msgspec.structs.replace(profile, account=account, evidence=evidence)


fires = {
    "a loop, of which the line is known": _sampled(_on_a_cpu(60.0), _LOOP),
    "a loop on a busy machine": msgspec.structs.replace(_sampled(_on_a_cpu(60.0), _LOOP), disturbed=("account",)),
    "reading thousands of tensors, of which each is an operator to the profiler": _reading("int"),
    "reading tensors by operators that fit into the unprofiled step even so": _reading("int", 85.0),
    "four tenths of a step on a CPU": _on_a_cpu(60.0),
    "three tenths, all of them outside backward": _on_a_cpu(70.0, backward=(40.0, 40.0)),
    "twice as much as what is printed": _on_a_cpu(60.0, printing=0.2),
    "a device idles between steps": _on_a_device(trace_of(idle_for("between_steps", 20.0, in_operators=0.1))),
    "and between kernels": _on_a_device(
        trace_of(idle_for("between_steps", 8.0, in_operators=0.1), idle_for("launch_bound", 10.0, in_operators=0.3))
    ),
}
silent = {
    "nothing measured": Profile(),
    "others were busy, and no line shows it": msgspec.structs.replace(_on_a_cpu(60.0), disturbed=("profile",)),
    "operators fill the step, and tracing made it longer": _on_a_cpu(95.0),
    "operators fill the traced step, and sampled lines waited for a core": _sampled(
        _on_a_cpu(105.0, traced_step=110.0), msgspec.structs.replace(_LOOP, phase="forward", seconds=2.6)
    ),
    "the unprofiled step was slower for another reason": _on_a_cpu(80.0, traced_step=82.0),
    "memory is freed within backward": _on_a_cpu(70.0, backward=(60.0, 35.0)),
    "it sleeps, which another rule covers": _sleeping(_on_a_cpu(60.0)),
    "it prints, which another rule covers": _on_a_cpu(60.0, printing=0.3),
    "it prepares what it prints, in the same line": _sampled(_on_a_cpu(60.0, printing=0.15), _PRINTED),
    "several processes, which wait for each other": _on_a_cpu(60.0, processes=2),
    "what is left is waiting for data": _on_a_cpu(60.0, data_wait=0.035),
    "a compiled model, whose kernels are no operators": _on_a_cpu(10.0, compiled=True),
    "the host was in operators while the device idled": _on_a_device(
        trace_of(idle_for("launch_bound", 30.0, in_operators=0.95))
    ),
    "the line calls an operator of torch's": _reading("torch.Tensor.scatter_add_"),
    "the device hides it": _on_a_device(trace_of(idle_for("between_steps", 2.0))),
}
