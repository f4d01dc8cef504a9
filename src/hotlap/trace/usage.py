"""How a device spent its time: busy, computing, communicating, copying, waiting."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hotlap.trace.dialects import COMMUNICATION_KERNEL, LAUNCH, Kind, copy_direction, copy_memory, uses_tensor_cores
from hotlap.trace.intervals import Intervals, Times, subtraction, union
from hotlap.trace.records import CopyRow, DeviceTime, KernelRow, KernelSummary, StreamIdle
from hotlap.trace.timeline import NONE, Column, Mask, Timeline, is_kind

KERNEL_WAIT_BELOW = 30_000
"""Nanoseconds. A launched kernel that begins sooner than this only waited for its turn; the figure is HTA's."""


class DeviceSpans:
    """The disjoint times in which the selected events of a device kept it busy, by what they did."""

    def __init__(self, timeline: Timeline, selected: Mask) -> None:
        events = timeline.device
        kind = events.kind[selected]
        start, end = events.start[selected], events.end[selected]
        communication = timeline.named(COMMUNICATION_KERNEL)[events.name[selected]]
        kernel = kind == Kind.KERNEL

        def spans(chosen: Mask) -> Intervals:
            return union(start[chosen], end[chosen])

        self.started = start
        self.window = (int(start.min()), int(end.max())) if len(start) else (0, 0)
        self.busy = union(start, end)
        self.compute = spans(kernel & ~communication)
        self.communication = spans(kernel & communication)
        self.exposed = subtraction(self.communication, self.compute)
        self.copies = spans(kind == Kind.COPY)
        self.memsets = spans(kind == Kind.MEMSET)
        self.memory = spans(~kernel)

    def times(self, starts: Times, ends: Times) -> list[DeviceTime]:
        """How the device spent each of the windows. ``events`` are those that started in it."""
        began = np.sort(self.started)
        events = np.searchsorted(began, ends, side="left") - np.searchsorted(began, starts, side="left")
        parts = [
            it.within(starts, ends).tolist()
            for it in (
                self.busy, self.compute, self.communication, self.exposed, self.copies, self.memsets, self.memory
            )
        ]  # fmt: skip
        return [
            DeviceTime(
                window_nanoseconds=window,
                busy_nanoseconds=busy,
                compute_nanoseconds=compute,
                communication_nanoseconds=communication,
                exposed_communication_nanoseconds=exposed,
                copy_nanoseconds=copies,
                memset_nanoseconds=memsets,
                memory_nanoseconds=memory,
                events=count,
            )
            for window, busy, compute, communication, exposed, copies, memsets, memory, count in zip(
                (ends - starts).tolist(), *parts, events.tolist(), strict=True
            )
        ]

    def time(self, start: int, end: int) -> DeviceTime:
        """How the device spent one window."""
        return self.times(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64))[0]

    def whole(self) -> DeviceTime:
        """From the first event's start to the last one's end, which counts too when it takes no time."""
        time = self.time(*self.window)
        return DeviceTime(
            **{name: getattr(time, name) for name in DeviceTime.__struct_fields__ if name != "events"},
            events=len(self.started),
        )


def device_time(timeline: Timeline, selected: Mask) -> DeviceTime:
    """How the selected events of one device spent the time from the first one's start to the last one's end."""
    return DeviceSpans(timeline, selected).whole()


def stream_idle(timeline: Timeline, selected: Mask) -> list[StreamIdle]:
    """The waits within each stream among the selected events of one device."""
    events = timeline.device
    rows = []
    for stream, chosen in _groups(events.stream, np.flatnonzero(selected)):
        start, launch = events.start[chosen[1:]], events.launch[chosen[1:]]
        reached = np.maximum.accumulate(events.end[chosen])[:-1]
        wait = np.maximum(start - reached, 0)
        linked = launch != NONE
        host = np.zeros(len(wait), dtype=bool)
        host[linked] = timeline.host.start[launch[linked]] > reached[linked]
        kernel = ~host & (wait < KERNEL_WAIT_BELOW)
        other = ~host & ~kernel
        rows.append(
            StreamIdle(
                stream=stream,
                events=len(chosen),
                host_wait_nanoseconds=int(wait[host].sum()),
                kernel_wait_nanoseconds=int(wait[kernel].sum()),
                other_nanoseconds=int(wait[other].sum()),
                host_waits=int(host.sum()),
                kernel_waits=int(kernel.sum()),
                others=int(other.sum()),
            )
        )
    return rows


def kernel_table(timeline: Timeline, selected: Mask) -> list[KernelRow]:
    """All kernels, copies and memsets by name, the longest in sum first."""
    events = timeline.device
    names, kinds = events.name[selected], events.kind[selected]
    lengths = (events.end - events.start)[selected]
    if not len(names):
        return []
    distinct, first, position = np.unique(names, return_index=True, return_inverse=True)
    launches = np.bincount(position)
    total = np.zeros(len(distinct), dtype=np.int64)
    shortest = np.full(len(distinct), np.iinfo(np.int64).max)
    longest = np.zeros(len(distinct), dtype=np.int64)
    np.add.at(total, position, lengths)
    np.minimum.at(shortest, position, lengths)
    np.maximum.at(longest, position, lengths)
    rows = []
    for index in np.argsort(-total, kind="stable"):
        name, kind = timeline.names[distinct[index]], int(kinds[first[index]])
        rows.append(
            KernelRow(
                name=name,
                kind="kernel" if kind == Kind.KERNEL else "copy" if kind == Kind.COPY else "memset",
                launches=int(launches[index]),
                nanoseconds=int(total[index]),
                shortest_nanoseconds=int(shortest[index]),
                longest_nanoseconds=int(longest[index]),
                communication=kind == Kind.KERNEL and bool(COMMUNICATION_KERNEL.search(name)),
                tensor_cores=uses_tensor_cores(name) if kind == Kind.KERNEL else None,
            )
        )
    return rows


def kernel_summary(timeline: Timeline, selected: Mask) -> KernelSummary:
    """How many kernels, how many a step, and how many are shorter than what it costs to launch them."""
    events = timeline.device
    kernels = selected & (events.kind == Kind.KERNEL)
    lengths = (events.end - events.start)[kernels]
    cost = launch_cost(timeline)
    short = lengths < cost if cost is not None else np.zeros(len(lengths), dtype=bool)
    in_steps = int((kernels & (events.step != NONE)).sum())
    return KernelSummary(
        kernels=len(lengths),
        distinct=len(np.unique(events.name[kernels])),
        nanoseconds=int(lengths.sum()),
        short_kernels=int(short.sum()),
        short_nanoseconds=int(lengths[short].sum()),
        launch_cost_nanoseconds=cost,
        per_step=in_steps / len(timeline.steps) if len(timeline.steps) else None,
    )


def launch_cost(timeline: Timeline) -> int | None:
    """The median time of a call that launches one kernel; None without such calls."""
    host = timeline.host
    calls = is_kind(host.kind, Kind.CALL) & timeline.named(LAUNCH)[host.name]
    if not calls.any():
        return None
    return int(np.median((host.end - host.start)[calls]))


def copy_table(timeline: Timeline, selected: Mask) -> list[CopyRow]:
    """Copies by direction and host memory, the longest in sum first."""
    events = timeline.device
    copies = np.flatnonzero(selected & (events.kind == Kind.COPY))
    rows: dict[tuple[str, str], list[int]] = {}
    for name, chosen in _groups(events.name, copies):
        text = timeline.names[name]
        row = rows.setdefault((copy_direction(text), copy_memory(text)), [0, 0, 0])
        row[0] += len(chosen)
        row[1] += int((events.end[chosen] - events.start[chosen]).sum())
        row[2] += sum(events.bytes[chosen].tolist())
    made = [
        CopyRow(direction=direction, memory=memory, copies=count, nanoseconds=length, bytes=size)
        for (direction, memory), (count, length, size) in rows.items()
    ]
    return sorted(made, key=lambda it: -it.nanoseconds)


def _groups(column: Column, chosen: Column) -> Iterator[tuple[int, Column]]:
    """The chosen indices by their value in a column, each group in its old order; fast for many groups too."""
    order = chosen[np.argsort(column[chosen], kind="stable")]
    values, first = np.unique(column[order], return_index=True)
    # Of nothing np.split makes one empty part, for which there is no value.
    yield from zip(values.tolist(), np.split(order, first[1:]), strict=False)
