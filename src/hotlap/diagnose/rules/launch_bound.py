"""The host cannot launch kernels as fast as the device executes them.

## What it is
The step is made of many small kernels. Each must be dispatched by torch and launched by the driver, which takes the
host several microseconds, however little the kernel does.

## Why it is slow
If a kernel is shorter than its launch, the device finishes it before the next one arrives, and idles. A faster device
does not help then; the host's single thread is the bottleneck.

## How to see it
The trace of a few steps: idle time of the device in which the host was still inside operators or launch calls, with at
least 30 % of the kernels shorter than a launch. Time that the host spent in Python between operators is reported by
`python-overhead` instead. A profiler makes launching slower; the shares given here are those of an unprofiled step.

## What to do
`torch.compile` fuses many kernels into few, and `mode="reduce-overhead"` replays the step as one CUDA graph. A fused
optimizer (`fused=True`) updates all parameters in a few kernels. A larger batch gives each kernel more to do.

## When it is fine
Small models for which a step of a millisecond is fast enough. On a CPU there are no launches, and this rule is silent.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.device_idle import idle_cause, idle_share, in_operators, traced_device
from hotlap.diagnose.example_traces import STEP_SECONDS, idle_for, many_kernels, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import is_material, scaled
from hotlap.diagnose.wording import count, duration, levers_for, name, percent, share_of_step
from hotlap.records import Estimate, Finding, PhaseAccount, ScriptFacts
from hotlap.traces.records import Breakdown, IdleCause, KernelSummary

title = "The host cannot launch kernels fast enough"
group: Group = "host"

_NAME = "launch-bound"
_MANY_SHORT = 0.3
_SHOWN = 3


def check(profile: Profile) -> Iterator[Finding]:
    """Yield one finding if the device idles for launches and many kernels are shorter than one."""
    device = traced_device(profile)
    cause, idle = idle_cause(profile, "launch_bound"), idle_share(profile, "launch_bound")
    if device is None or cause is None or idle is None or device.kernel_summary.short_share < _MANY_SHORT:
        return
    share = scaled(idle, in_operators(cause))
    if is_material(share):
        yield _finding(share, cause, device.kernel_summary)


def _finding(share: Estimate, cause: IdleCause, kernels: KernelSummary) -> Finding:
    return Finding(
        rule=_NAME,
        share=share,
        title=f"The device idles {percent(share.value)} of the step, because its kernels are launched too slowly.",
        evidence=(
            f"idle while the host was launching: {share_of_step(share)}, in {count(cause.gaps, 'gap')}",
            _kernels(kernels),
            *(
                f"in such gaps the host was in {name(it.name)}: {duration(it.nanoseconds / 1e9)}"
                for it in cause.evidence[:_SHOWN]
                if it.role == "operator"
            ),
        ),
        remedy="Compile the model (torch.compile; mode='reduce-overhead' replays the step as a CUDA graph), or use a "
        "fused optimizer or a larger batch.",
        levers=levers_for(_NAME),
    )


def _kernels(kernels: KernelSummary) -> str:
    many = f"{kernels.per_step:.0f} kernels per step" if kernels.per_step else count(kernels.kernels, "kernel")
    launch = kernels.launch_cost_nanoseconds
    than = f"the {duration(launch / 1e9)} that a launch takes" if launch else "a launch"
    return f"{many}, {percent(kernels.short_share)} of them shorter than {than}"


def _profile(*traces: Breakdown) -> Profile:
    return Profile(
        facts=ScriptFacts(device="cuda"),
        account=PhaseAccount(wall=STEP_SECONDS, phases=(("forward", STEP_SECONDS),)),
        breakdowns=traces,
    )


fires = {
    "a third of the step, three quarters of the kernels short": _profile(
        trace_of(idle_for("launch_bound", 33.0, in_operators=0.9), kernels=many_kernels(short_share=0.75))
    ),
    "a trace alone, without an account of the unprofiled step": Profile(
        breakdowns=(trace_of(idle_for("launch_bound", 10.0, in_operators=1.0), kernels=many_kernels(short_share=0.5)),)
    ),
}
silent = {
    "nothing measured": Profile(),
    "long kernels": _profile(
        trace_of(idle_for("launch_bound", 33.0, in_operators=0.9), kernels=many_kernels(short_share=0.1))
    ),
    "the host was in Python, not in operators": _profile(
        trace_of(idle_for("launch_bound", 33.0, in_operators=0.01), kernels=many_kernels(short_share=0.75))
    ),
    "short kernels that keep the device busy": _profile(
        trace_of(idle_for("launch_bound", 0.5, in_operators=0.9), kernels=many_kernels(short_share=0.75))
    ),
}
