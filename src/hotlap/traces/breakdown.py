"""Break down a timeline: coverage, steps, and for each device its time, streams, copies, kernels and idle gaps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hotlap.traces.hosts import HostActivity, working_threads
from hotlap.traces.idle import explain_idle
from hotlap.traces.occupancy import with_configurations
from hotlap.traces.records import Breakdown, Coverage, DeviceBreakdown, DeviceTime, StepTime
from hotlap.traces.timeline import Selection, Timeline
from hotlap.traces.usage import (
    DeviceSpans,
    copy_table,
    kernel_summary,
    kernel_table,
    kernels_of,
    launch_cost,
    stream_idle,
)

MOST_DEVICES = 64
"""No process drives more; a broken file may name thousands."""

_UNLINKED_SHARE_WORTH_A_NOTE = 0.01


def analyse(timeline: Timeline, *, kernels: int = 100) -> Breakdown:
    """Break down a trace. ``kernels`` bounds the rows of each kernel table; the sums cover all."""
    return _Analysis(timeline, kernels).breakdown()


class _Analysis:
    """Values that several parts of a trace's breakdown share."""

    def __init__(self, timeline: Timeline, kernels: int) -> None:
        self.timeline = timeline
        self.kernels = kernels
        self.every = range(len(timeline.device))
        self.by_device = timeline.by_device()
        self._activities: dict[frozenset[int], HostActivity] = {}
        self.launch_cost = launch_cost(timeline)
        # A thread that works on the model is one that issues work; any, where no device works.
        self._issuing = working_threads(timeline, self.every)
        threads = self._issuing if self.by_device else frozenset(range(len(timeline.threads)))
        self.loader = self._activity(threads).loader

    def breakdown(self) -> Breakdown:
        timeline = self.timeline
        starts = [it.start[0] for it in timeline.host if len(it)]
        ends = [max(it.end) for it in timeline.host if len(it)]
        return Breakdown(
            facts=timeline.facts,
            coverage=timeline.coverage,
            host_nanoseconds=max(ends) - min(starts) if starts else 0,
            steps=self._steps(kernels_of(timeline, self.every), [None] * len(timeline.steps)),
            devices=tuple(self._device(*it) for it in list(self.by_device.items())[:MOST_DEVICES]),
            unreliable=_unreliable(timeline.coverage),
            notes=tuple(_notes(timeline, len(self.by_device))),
        )

    def _device(self, device: int, selected: Selection) -> DeviceBreakdown:
        timeline = self.timeline
        kernels = kernels_of(timeline, selected)
        spans = DeviceSpans(timeline, selected, kernels)
        steps = timeline.steps
        return DeviceBreakdown(
            device=device,
            name=timeline.facts.name_of_device(device),
            start_nanoseconds=spans.window[0],
            time=spans.whole(),
            in_steps=spans.time(*timeline.steps_span) if timeline.steps_span is not None else None,
            steps=self._steps(kernels, [spans.time(it.start, it.end) for it in steps]),
            streams=tuple(stream_idle(timeline, selected)),
            copies=tuple(copy_table(timeline, selected)),
            kernels=with_configurations(timeline, selected, kernel_table(timeline, selected, self.kernels)),
            kernel_summary=kernel_summary(timeline, kernels, self.launch_cost),
            idle=explain_idle(timeline, selected, self._activity(self._threads(selected))),
        )

    def _threads(self, selected: Selection) -> frozenset[int]:
        return self._issuing if len(selected) == len(self.every) else working_threads(self.timeline, selected)

    def _activity(self, threads: frozenset[int]) -> HostActivity:
        if threads not in self._activities:
            self._activities[threads] = HostActivity(self.timeline, threads)
        return self._activities[threads]

    def _steps(self, kernels: Selection, times: Sequence[DeviceTime | None]) -> tuple[StepTime, ...]:
        steps = self.timeline.steps
        launched = Counter(self.timeline.device.of(kernels, self.timeline.device.step)) if steps else Counter()
        return tuple(
            StepTime(
                number=step.number,
                start_nanoseconds=step.start,
                nanoseconds=step.end - step.start,
                loader_nanoseconds=self.loader.within(step.start, step.end),
                device=time,
                kernels=launched[index],
            )
            for index, (step, time) in enumerate(zip(steps, times, strict=True))
        )


def _unreliable(coverage: Coverage) -> str:
    """Profilers record the kernels of a replayed graph only in part: their time then looks like idle time."""
    empty, part = coverage.graph_launches_without_kernels, coverage.graph_launches_in_part
    launches = coverage.graph_launches
    if empty and coverage.unlinked_events >= empty:
        return (
            f"{empty} of {launches} graph launches have no kernels linked to them, and {coverage.unlinked_events} "
            "device events have no launch: part of the graphs' work may be missing"
        )
    if empty:
        return f"the kernels of {empty} of {launches} graph launches were not recorded, so busy time looks idle"
    if part:
        return (
            f"{part} of {launches} graph launches have fewer kernels than other launches of the same graph: part of "
            "their work was not recorded, so busy time looks idle"
        )
    return ""


def _notes(timeline: Timeline, devices: int) -> list[str]:
    coverage = timeline.coverage
    notes = []
    if not len(timeline.device):
        notes.append("the trace holds no accelerator work, so the host's is shown")
    if not timeline.steps:
        notes.append(
            "the trace marks no steps, so nothing is given per step (a profiler with a `schedule` marks them, at each "
            "`profiler.step()`)"
        )
    if devices > MOST_DEVICES:
        notes.append(f"the trace names {devices} devices; the first {MOST_DEVICES} are shown")
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
