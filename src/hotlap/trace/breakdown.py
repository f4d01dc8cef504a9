"""A timeline's whole account: coverage, steps, and for each device its time, streams, copies, kernels and idle gaps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hotlap.trace.dialects import LOADER, Kind
from hotlap.trace.hosts import HostActivity
from hotlap.trace.idle import explain_idle
from hotlap.trace.intervals import Intervals, union
from hotlap.trace.records import Breakdown, Coverage, DeviceBreakdown, DeviceTime, StepTime
from hotlap.trace.timeline import NONE, Mask, Timeline
from hotlap.trace.usage import DeviceSpans, copy_table, kernel_summary, kernel_table, stream_idle

MOST_DEVICES = 64
"""No process drives more; a broken file may name thousands, and each costs a pass over all events."""

_UNLINKED_SHARE_WORTH_A_NOTE = 0.01


def analyse(timeline: Timeline, *, kernels: int = 100) -> Breakdown:
    """Everything that is said of a trace. ``kernels`` bounds the rows of each kernel table; the sums cover all."""
    host = timeline.host
    every = np.ones(len(timeline.device), dtype=bool)
    loader = _loader_waits(timeline, every)
    return Breakdown(
        facts=timeline.facts,
        coverage=timeline.coverage,
        host_nanoseconds=int(host.end.max() - host.start.min()) if len(host) else 0,
        steps=_steps(timeline, every, [None] * len(timeline.steps), loader),
        devices=tuple(_device(timeline, it, kernels, loader) for it in timeline.devices()[:MOST_DEVICES]),
        unreliable=_unreliable(timeline.coverage),
        notes=tuple(_notes(timeline)),
    )


def _device(timeline: Timeline, device: int, kernels: int, loader: Intervals) -> DeviceBreakdown:
    selected = timeline.on_device(device)
    spans = DeviceSpans(timeline, selected)
    known = timeline.facts.device_names
    steps = timeline.steps
    in_steps = spans.time(int(steps.start.min()), int(steps.end.max())) if len(steps) else None
    return DeviceBreakdown(
        device=device,
        name=known[device] if 0 <= device < len(known) else "",
        start_nanoseconds=spans.window[0],
        time=spans.whole(),
        in_steps=in_steps,
        steps=_steps(timeline, selected, spans.times(steps.start, steps.end), loader),
        streams=tuple(stream_idle(timeline, selected)),
        copies=tuple(copy_table(timeline, selected)),
        kernels=tuple(kernel_table(timeline, selected)[:kernels]),
        kernel_summary=kernel_summary(timeline, selected),
        idle=explain_idle(timeline, selected),
    )


def _steps(
    timeline: Timeline, selected: Mask, times: Sequence[DeviceTime | None], loader: Intervals
) -> tuple[StepTime, ...]:
    steps = timeline.steps
    if not len(steps):
        return ()
    waits = loader.within(steps.start, steps.end).tolist()
    kernel = selected & (timeline.device.kind == Kind.KERNEL) & (timeline.device.step != NONE)
    launched = np.bincount(timeline.device.step[kernel], minlength=len(steps)).tolist()
    return tuple(
        StepTime(
            number=number, start_nanoseconds=start, nanoseconds=end - start, loader_nanoseconds=wait, device=time,
            kernels=count,
        )
        for number, start, end, wait, time, count in zip(
            steps.number.tolist(), steps.start.tolist(), steps.end.tolist(), waits, times, launched, strict=True
        )
    )  # fmt: skip


def _loader_waits(timeline: Timeline, every: Mask) -> Intervals:
    """When a thread that works on the model waited for the data loader; every thread where no device works."""
    if len(timeline.device):
        return HostActivity(timeline, every).loader
    host = timeline.host
    chosen = timeline.named(LOADER)[host.name]
    return union(host.start[chosen], host.end[chosen])


def _unreliable(coverage: Coverage) -> str:
    """Profilers record the kernels of a replayed graph only in part: their time then looks like idle time."""
    empty, launches = coverage.graph_launches_without_kernels, coverage.graph_launches
    if not empty:
        return ""
    if coverage.unlinked_events >= empty:
        return (
            f"{empty} of {launches} graph launches have no kernels linked to them, and {coverage.unlinked_events} "
            "device events have no launch: part of the graphs' work may be missing"
        )
    return f"the kernels of {empty} of {launches} graph launches were not recorded, so busy time looks idle"


def _notes(timeline: Timeline) -> list[str]:
    coverage = timeline.coverage
    notes = []
    if not len(timeline.device):
        notes.append("the trace holds no accelerator work, so only the host's steps are shown")
    if not len(timeline.steps):
        notes.append("the trace marks no steps (the script did not call profiler.step()), so nothing is given per step")
    if len(timeline.devices()) > MOST_DEVICES:
        notes.append(f"the trace names {len(timeline.devices())} devices; the first {MOST_DEVICES} are shown")
    if coverage.ended_early:
        notes.append(f"{coverage.ended_early}; read {coverage.events} events in {coverage.bytes_read} bytes")
    if coverage.remark:
        notes.append(coverage.remark)
    if coverage.unlinked_events > _UNLINKED_SHARE_WORTH_A_NOTE * max(1, coverage.device_events):
        notes.append(f"{coverage.unlinked_events} device events have no launch in the trace; they count all the same")
    for count, what in (
        (coverage.invalid_events, "have no time, or a negative or absurd duration, and are left out"),
        (coverage.unreadable_events, "cannot be read"),
        (coverage.repaired_events, "are not proper JSON and were mended"),
    ):
        if count:
            notes.append(f"{count} events {what}")
    return notes
