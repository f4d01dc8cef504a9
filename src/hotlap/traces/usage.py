"""Break down a device's time: busy, computing, communicating, copying, waiting."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict

from hotlap.traces.dialects import LAUNCH, Kind, copy_direction, copy_memory, is_collective, uses_tensor_cores
from hotlap.traces.intervals import merged, subtraction
from hotlap.traces.records import CopyRow, DeviceTime, KernelRow, KernelSummary, StreamIdle
from hotlap.traces.timeline import NONE, Selection, Timeline

KERNEL_WAIT_BELOW = 30_000
"""Nanoseconds. A launched kernel that begins sooner than this only waited for its turn; the figure is HTA's."""


def kernels_of(timeline: Timeline, selected: Selection) -> Selection:
    """The kernels among some device events."""
    kind = timeline.device.kind
    return [it for it in selected if kind[it] == Kind.KERNEL]


class DeviceSpans:
    """The disjoint times in which the selected events of a device, ``kernels`` among them, kept it busy, by what they
    did."""

    def __init__(self, timeline: Timeline, selected: Selection, kernels: Selection) -> None:
        events = timeline.device
        spans = events.spans(selected)
        memory = [it for it in selected if events.kind[it] != Kind.KERNEL]
        copies = [it for it in memory if events.kind[it] == Kind.COPY]
        memsets = [it for it in memory if events.kind[it] == Kind.MEMSET]
        collective = events.named(is_collective)
        collectives = [it for it in kernels if events.name[it] in collective] if collective else []
        computing = [it for it in kernels if events.name[it] not in collective] if collectives else kernels
        self.starts = [start for start, _ in spans]
        self.window = (self.starts[0], max(end for _, end in spans)) if spans else (0, 0)
        self.busy = merged(spans)
        self.compute = merged(events.spans(computing))
        self.communication = merged(events.spans(collectives))
        self.exposed = subtraction(self.communication, self.compute)
        self.copies = merged(events.spans(copies))
        self.memsets = merged(events.spans(memsets))
        self.memory = merged(events.spans(memory))

    def time(self, start: int, end: int) -> DeviceTime:
        """How the device spent a window. ``events`` are those that started in it."""
        return DeviceTime(
            window_nanoseconds=end - start,
            busy_nanoseconds=self.busy.within(start, end),
            compute_nanoseconds=self.compute.within(start, end),
            communication_nanoseconds=self.communication.within(start, end),
            exposed_communication_nanoseconds=self.exposed.within(start, end),
            copy_nanoseconds=self.copies.within(start, end),
            memset_nanoseconds=self.memsets.within(start, end),
            memory_nanoseconds=self.memory.within(start, end),
            events=bisect_left(self.starts, end) - bisect_left(self.starts, start),
        )

    def whole(self) -> DeviceTime:
        """From the first event's start to the last one's end."""
        start, end = self.window
        return DeviceTime(
            window_nanoseconds=end - start,
            busy_nanoseconds=self.busy.total,
            compute_nanoseconds=self.compute.total,
            communication_nanoseconds=self.communication.total,
            exposed_communication_nanoseconds=self.exposed.total,
            copy_nanoseconds=self.copies.total,
            memset_nanoseconds=self.memsets.total,
            memory_nanoseconds=self.memory.total,
            events=len(self.starts),
        )


def stream_idle(timeline: Timeline, selected: Selection) -> list[StreamIdle]:
    """Sum the waits within each stream among the selected events of one device."""
    events = timeline.device
    streams: defaultdict[int, list[int]] = defaultdict(list)
    for it in selected:
        streams[events.stream[it]].append(it)
    return [_waits_within(timeline, stream, members) for stream, members in sorted(streams.items())]


def _waits_within(timeline: Timeline, stream: int, members: list[int]) -> StreamIdle:
    events = timeline.device
    start, end, launch, launched = events.start, events.end, events.launch, events.launched
    host: list[int] = []
    kernel: list[int] = []
    other: list[int] = []
    reached = end[members[0]]
    for it in members[1:]:
        wait = start[it] - reached if start[it] > reached else 0
        if launch[it] != NONE and launched[it] > reached:
            host.append(wait)
        elif wait < KERNEL_WAIT_BELOW:
            kernel.append(wait)
        else:
            other.append(wait)
        if end[it] > reached:
            reached = end[it]
    return StreamIdle(
        stream=stream,
        events=len(members),
        host_wait_nanoseconds=sum(host),
        kernel_wait_nanoseconds=sum(kernel),
        other_nanoseconds=sum(other),
        host_waits=len(host),
        kernel_waits=len(kernel),
        others=len(other),
    )


def kernel_table(timeline: Timeline, selected: Selection, most: int | None = None) -> list[KernelRow]:
    """Kernels, copies and memsets by name, the longest in sum first; all, or so many."""
    events = timeline.device
    start, end, name = events.start, events.end, events.name
    lengths: defaultdict[int, list[int]] = defaultdict(list)
    for it in selected:
        lengths[name[it]].append(end[it] - start[it])
    kinds = dict(zip(name, events.kind, strict=True))
    longest = sorted(lengths, key=lambda it: (-sum(lengths[it]), it))[:most]
    return [_kernel_row(events.names[it], kinds[it], lengths[it]) for it in longest]


def _kernel_row(name: str, kind: int, lengths: list[int]) -> KernelRow:
    kernel = kind == Kind.KERNEL
    return KernelRow(
        name=name,
        kind="kernel" if kernel else "copy" if kind == Kind.COPY else "memset",
        launches=len(lengths),
        nanoseconds=sum(lengths),
        shortest_nanoseconds=min(lengths),
        longest_nanoseconds=max(lengths),
        communication=kernel and is_collective(name),
        tensor_cores=uses_tensor_cores(name) if kernel else None,
    )


def kernel_summary(timeline: Timeline, kernels: Selection, cost: int | None) -> KernelSummary:
    """Count kernels in total, per step, and those shorter than the cost of a launch."""
    events = timeline.device
    lengths = [end - start for start, end in events.spans(kernels)]
    short = [] if cost is None else [it for it in lengths if it < cost]
    in_steps = len(kernels) - events.of(kernels, events.step).count(NONE)
    return KernelSummary(
        kernels=len(lengths),
        distinct=len(set(events.of(kernels, events.name))),
        nanoseconds=sum(lengths),
        short_kernels=len(short),
        short_nanoseconds=sum(short),
        launch_cost_nanoseconds=cost,
        per_step=in_steps / len(timeline.steps) if timeline.steps else None,
    )


def launch_cost(timeline: Timeline) -> int | None:
    """The median time of a call that launches one kernel; None without such calls."""
    calls = timeline.calls
    launching = calls.named(LAUNCH.search)
    lengths = sorted(
        end - start for start, end, name in zip(calls.start, calls.end, calls.name, strict=True) if name in launching
    )
    middle = len(lengths) // 2
    return (lengths[middle] + lengths[-middle - 1]) // 2 if lengths else None


def copy_table(timeline: Timeline, selected: Selection) -> list[CopyRow]:
    """Copies by direction and host memory, the longest in sum first."""
    events = timeline.device
    copies: defaultdict[int, list[int]] = defaultdict(list)
    for it in selected:
        if events.kind[it] == Kind.COPY:
            copies[events.name[it]].append(it)
    alike: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for name, members in sorted(copies.items()):
        text = events.names[name]
        alike[copy_direction(text), copy_memory(text)] += members
    rows = [
        CopyRow(
            direction=direction,
            memory=memory,
            copies=len(members),
            nanoseconds=sum(events.end[it] - events.start[it] for it in members),
            bytes=sum(events.bytes[it] for it in members),
        )
        for (direction, memory), members in alike.items()
    ]
    return sorted(rows, key=lambda it: -it.nanoseconds)
