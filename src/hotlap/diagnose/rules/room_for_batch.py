"""More than half of the device's memory is free, and the device is not busy.

## What it is
At its peak, training holds less than half of the device's memory, while the device computes for only a part of the step
or far below its measured rate: a larger batch would fit.

## Why it is slow
Small batches mean small kernels. The fixed cost of a step (launches, the optimizer, communication) is then shared by
few samples.

## How to see it
The peak of live tensors compared with the device's memory; how much of the step the device computed, how many of its
kernels were shorter than their launch, and which share of the measured matmul rate the model reached.

## What to do
Raise the batch size until throughput no longer rises or the memory is four fifths full, and tune the learning rate
again.

## When it is fine
A larger batch changes what is learned: there are fewer updates for the same samples, and the learning rate no longer
fits. If training must reproduce a published result, or converges worse with larger batches, leave the memory free. On a
CPU, memory says nothing about a batch's speed.
"""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.api import Group
from hotlap.diagnose.device_idle import traced_device
from hotlap.diagnose.example_traces import idle_for, many_kernels, trace_of
from hotlap.diagnose.memory_use import device_memory
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import exactly, phase_share
from hotlap.diagnose.wording import levers_for, name, percent, size
from hotlap.evidence import MemoryTimeline, RunEvidence
from hotlap.records import Finding, LoaderFacts, PhaseAccount, ScriptFacts
from hotlap.traces.records import Breakdown

title = "More than half of the device's memory is free"
group: Group = "memory"

_FREE = 0.50
_BUSY = 0.90
_MOST_SHORT_KERNELS = 0.50
_LOW_UTILISATION = 0.30
_DATA_BOUND = 0.20


def check(profile: Profile) -> Iterator[Finding]:
    """Yield a hint if a larger batch fits and the device has time for it."""
    use = device_memory(profile)
    reasons = tuple(_underused(profile))
    if use is None or use.share >= _FREE or not reasons:
        return
    if phase_share(profile, "data_wait").value >= _DATA_BOUND:
        return  # more samples per step would only mean more waiting
    sizes = sorted({it.batch_size for it in profile.facts.loaders if it.batch_size})
    now = f"the loader's batch size is {', '.join(map(str, sizes))}"
    yield Finding(
        rule="room-for-batch",
        kind="hint",
        share=exactly(0.0),
        title=f"Training uses {percent(use.share)} of the memory of {name(use.owner)}: a larger batch would fit.",
        evidence=(
            f"{size(use.peak_bytes)} of {size(use.limit_bytes)} at the peak",
            *reasons,
            *([now] if sizes else []),
        ),
        remedy="Raise the batch size step by step and compare samples per second. This changes what is learned: tune "
        "the learning rate with it, and compare the final metric.",
        site=next((it.site for it in profile.facts.loaders if it.site), None),
        levers=levers_for("room-for-batch"),
    )


def _underused(profile: Profile) -> Iterator[str]:
    """Yield signs that the device has time left; none without measurements."""
    utilisation = profile.model_flop_utilisation
    if utilisation is not None and 0 < utilisation < _LOW_UTILISATION:
        yield f"the model reaches {percent(utilisation)} of the matmul rate measured here"
    device = traced_device(profile)
    if device is None:
        return
    time = device.in_steps or device.time
    busy = time.busy_nanoseconds / time.window_nanoseconds if time.window_nanoseconds else 1.0
    if busy < _BUSY:
        yield f"the device is busy for {percent(busy)} of the profiled steps"
    if device.kernel_summary.short_share > _MOST_SHORT_KERNELS:
        yield f"{percent(device.kernel_summary.short_share)} of its kernels are shorter than their launch"


# ---------------------------------------------------------------------------------------------
# Examples
# ---------------------------------------------------------------------------------------------

_GIB = 1 << 30


def _trace(busy_share: float, short_kernels: float = 0.1) -> Breakdown:
    """Steps of 100 ms."""
    idle = idle_for("unknown", 100 * (1 - busy_share))
    return trace_of(idle, kernels=many_kernels(short_share=short_kernels))


def _profile(
    peak: int,
    *,
    trace: Breakdown | None = None,
    utilisation: float | None = None,
    data_wait: float = 0.0,
    device: str = "cuda:0",
) -> Profile:
    return Profile(
        facts=ScriptFacts(device=device, loaders=(LoaderFacts(dataset="Images", batch_size=32),)),
        account=PhaseAccount(
            wall=0.1,
            phases=(
                ("data_wait", data_wait),
                ("forward", 0.1 - data_wait),
            ),
        ),
        model_flop_utilisation=utilisation,
        evidence=RunEvidence(
            observed_steps=40, memory=MemoryTimeline(peak_allocated_bytes=peak * _GIB, limit_bytes=80 * _GIB)
        ),
        breakdowns=(trace,) if trace else (),
    )


fires = {
    "a device that idles half of the time": _profile(8, trace=_trace(busy_share=0.5)),
    "a busy device with tiny kernels": _profile(8, trace=_trace(busy_share=0.95, short_kernels=0.8)),
    "a tenth of the matmul rate": _profile(20, utilisation=0.1),
}

silent = {
    "nothing was measured": Profile(),
    "more than half is used": _profile(44, trace=_trace(busy_share=0.5)),
    "a device that is busy with large kernels": _profile(8, trace=_trace(busy_share=0.97), utilisation=0.5),
    "it is unknown how busy the device is": _profile(8),
    "the loader is what is waited for": _profile(8, trace=_trace(busy_share=0.4), data_wait=0.05),
    "training on the CPU": _profile(8, trace=_trace(busy_share=0.5), device="cpu"),
}
