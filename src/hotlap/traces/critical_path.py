"""The critical path: the chain of dependent work on host and device that decided how long the steps took.

The dependencies are those of Holistic Trace Analysis ("Critical Path Analysis", hta.readthedocs.io): a kernel depends
on the call that launched it and on the work before it in its stream, a host that synchronises depends on the work that
it waits for, and a host thread on what it did before. Of several dependencies the one that ended last was the one that
was waited for (the last-arriving edge of Fields, Rubin and Bodik, "Focusing Processor Policies via Critical-Path
Prediction", ISCA 2001). So the path is found by walking back from the end, in time that grows with the number of events
on it and memory that grows with the number of the device's events.

A trace does not record what work of another stream an event waits for. If an event began more than 30 microseconds
after its launch and the work before it in its stream, it is assumed to depend on the work of another stream that ended
last in between, if there is any. The threads that issue work take turns as a rule (autograd's does while Python waits
for it) and count as one host; a wait of one of them while another one works is skipped.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from hotlap.traces.dialects import Kind, is_collective
from hotlap.traces.hosts import HostActivity, working_threads
from hotlap.traces.intervals import Intervals, Span, subtraction, union
from hotlap.traces.path_records import CriticalPath, PathContributor, PathKind, PathPart, StepPath
from hotlap.traces.timeline import NONE, HostEvents, Selection, Timeline
from hotlap.traces.usage import KERNEL_WAIT_BELOW

_CLOCK_ERROR = 10_000
"""Nanoseconds. A device event may appear to end up to this much after the host returned from waiting for it."""

_CONTRIBUTORS_KEPT = 20
_ORDER: tuple[PathKind, ...] = (
    "compute", "communication", "copy", "queue", "launch", "sync_return", "operator", "loader", "python"
)  # fmt: skip


class _Longest(NamedTuple):
    """The longest occurrence of a name on the path: its length, and the device event or the host's moment."""

    nanoseconds: int
    event: int
    moment: int
    thread: int


class _Sum:
    """The time of one name on the path."""

    def __init__(self) -> None:
        self.nanoseconds = 0
        self.times = 0
        self.longest = _Longest(-1, NONE, 0, NONE)

    def add(self, nanoseconds: int, event: int, moment: int, thread: int) -> None:
        self.nanoseconds += nanoseconds
        self.times += 1
        if nanoseconds > self.longest.nanoseconds:
            self.longest = _Longest(nanoseconds, event, moment, thread)


def critical_path(timeline: Timeline) -> CriticalPath | None:
    """Find the path through all steps, or the whole trace if it marks none; None without device work."""
    by_device = timeline.by_device()
    if not by_device:
        return None
    events = timeline.device
    device, selected = max(by_device.items(), key=lambda it: sum(end - start for start, end in events.spans(it[1])))
    walk = _Walk(timeline, selected)
    walk.run()
    return _Account(timeline, walk).path(device)


class _Walk:
    """Walks back along the path of one device; ``spans`` are its parts by kind, the latest first."""

    def __init__(self, timeline: Timeline, selected: Selection) -> None:
        self.timeline = timeline
        self.activity = HostActivity(timeline, working_threads(timeline, selected))
        self.spans: defaultdict[PathKind, list[Span]] = defaultdict(list)
        self.host: list[Span] = []
        self.sums: defaultdict[tuple[PathKind, str], _Sum] = defaultdict(_Sum)
        events = timeline.device
        self._collective = events.named(is_collective)
        self._before = _before_in_stream(timeline, selected)
        self._by_end = sorted(selected, key=lambda it: (events.end[it], it))
        self._ends = [events.end[it] for it in self._by_end]
        self._waits_left = len(self.activity.waits)
        self._thread = self.activity.main_thread
        self._bounds(selected)

    def _bounds(self, selected: Selection) -> None:
        """The start and end of the path, and its last event if it ends on the device."""
        timeline, events = self.timeline, self.timeline.device
        if timeline.steps_span is None:
            self.start = min(events.launched[selected[0]], events.start[selected[0]])
            self.last: int = self._by_end[-1]
            self.end = events.end[self.last]
            return
        self.start, self.end = timeline.steps_span
        self.last = NONE
        for event in reversed(self._by_end):
            if events.end[event] <= self.end:
                break
            if events.step[event] != NONE:
                self.last, self.end = event, events.end[event]
                break

    def run(self) -> None:
        """Find the whole path."""
        time, event = self.end, self.last
        while time > self.start:
            time, event = self._on_host(time) if event == NONE else self._on_device(time, event)

    def _on_device(self, time: int, event: int) -> tuple[int, int]:
        """Follow a device event back to what it depended on."""
        events = self.timeline.device
        began = min(time, max(self.start, events.start[event]))
        kind = self._kind(event)
        self.spans[kind].append((began, time))
        self.sums[kind, events.name_of(event)].add(time - began, event, began, NONE)
        earlier, ended = self._dependency(event)
        between: PathKind = "launch" if earlier == NONE else "queue"
        ended = min(began, max(self.start, ended))
        self.spans[between].append((ended, began))
        if earlier == NONE and events.launch[event] != NONE:
            self._thread = self.timeline.calls.thread[events.launch[event]]
        return ended, earlier

    def _dependency(self, event: int) -> tuple[int, int]:
        """Find the dependency that ended last, and when: an event, or :data:`NONE` for the launch."""
        events = self.timeline.device
        start, before = events.start[event], self._before[event]
        # Where the launch is unknown, the host is taken to have launched it as late as possible if nothing else is
        # known to come before it.
        known = events.launch[event] != NONE
        launched = min(start, events.launched[event]) if known else start if before == NONE else self.start
        ready = launched if before == NONE else max(launched, min(start, events.end[before]))
        if start - ready > KERNEL_WAIT_BELOW:
            index = bisect_right(self._ends, start) - 1
            if index >= 0 and self._ends[index] > ready and self._by_end[index] < event:
                return self._by_end[index], self._ends[index]
        if before != NONE and min(start, events.end[before]) >= launched:
            return before, min(start, events.end[before])
        return NONE, launched

    def _on_host(self, time: int) -> tuple[int, int]:
        """Follow the host back to where it returned from waiting for the device."""
        calls = self.timeline.calls
        while self._waits_left:
            wait = self.activity.waits[self._waits_left - 1]
            if wait.end <= self.start:
                break
            self._waits_left -= 1
            if wait.end > time or self._works_elsewhere(wait.call):
                continue
            event = self._waited_for(calls.start[wait.call], wait.end)
            if event == NONE:
                continue
            self.host.append((wait.end, time))
            ended = max(self.start, min(wait.end, self.timeline.device.end[event]))
            self.spans["sync_return"].append((ended, wait.end))
            self._thread = calls.thread[wait.call]
            return ended, event
        self.host.append((self.start, time))
        return self.start, NONE

    def _waited_for(self, start: int, end: int) -> int:
        """The device event that ended last while the host waited; :data:`NONE` if all work was already done."""
        index = bisect_right(self._ends, end + _CLOCK_ERROR) - 1
        return self._by_end[index] if index >= 0 and self._ends[index] > start else NONE

    def _works_elsewhere(self, wait: int) -> bool:
        """Whether the path's thread worked while another one waited."""
        calls = self.timeline.calls
        if self._thread in (NONE, calls.thread[wait]):
            return False
        start, end = calls.start[wait], calls.end[wait]
        tables: tuple[HostEvents, ...] = (calls, self.timeline.operators)
        return any(table.thread[it] == self._thread for table in tables for it in table.overlapping(start, end))

    def _kind(self, event: int) -> PathKind:
        events = self.timeline.device
        if events.kind[event] != Kind.KERNEL:
            return "copy"
        return "communication" if events.name[event] in self._collective else "compute"


def _before_in_stream(timeline: Timeline, selected: Selection) -> dict[int, int]:
    """For each event the one before it in its stream, or :data:`NONE`."""
    last: dict[int, int] = {}
    found: dict[int, int] = {}
    for event in selected:
        stream = timeline.device.stream[event]
        found[event] = last.get(stream, NONE)
        last[stream] = event
    return found


class _Account:
    """Sum the parts of a path by step and by name."""

    def __init__(self, timeline: Timeline, walk: _Walk) -> None:
        self.timeline = timeline
        self.walk = walk
        host = union(walk.host)
        without_loader = subtraction(host, walk.activity.loader)
        python = subtraction(without_loader, walk.activity.operators)
        self.loader = subtraction(host, without_loader)
        self.working = subtraction(without_loader, python)
        self.parts: dict[PathKind, Intervals] = {kind: union(spans) for kind, spans in walk.spans.items()}
        self.parts |= {"loader": self.loader, "operator": self.working, "python": python}

    def path(self, device: int) -> CriticalPath:
        walk, steps = self.walk, self.timeline.steps
        borders = [*(it.start for it in steps), walk.end]
        return CriticalPath(
            device=device,
            start_nanoseconds=walk.start,
            nanoseconds=walk.end - walk.start,
            parts=self._within(walk.start, walk.end),
            steps=tuple(
                StepPath(number=step.number, nanoseconds=end - step.start, parts=self._within(step.start, end))
                for step, end in zip(steps, borders[1:], strict=True)
            ),
            contributors=self._contributors(),
        )

    def _within(self, start: int, end: int) -> tuple[PathPart, ...]:
        found = ((kind, self.parts[kind].within(start, end)) for kind in _ORDER if kind in self.parts)
        return tuple(PathPart(kind=kind, nanoseconds=length) for kind, length in found if length)

    def _contributors(self) -> tuple[PathContributor, ...]:
        sums = dict(self.walk.sums)
        self._add_host(sums, "operator", self._outermost_operators(), self.working)
        self._add_host(sums, "loader", self._outermost_waits(), self.loader)
        ranked = sorted(sums.items(), key=lambda it: -it[1].nanoseconds)
        return tuple(self._contributor(*it) for it in ranked[:_CONTRIBUTORS_KEPT] if it[1].nanoseconds)

    def _add_host(
        self, sums: dict[tuple[PathKind, str], _Sum], kind: PathKind, spans: Iterable[_Named], on_path: Intervals
    ) -> None:
        for it in spans:
            nanoseconds = on_path.within(it.start, it.end)
            if nanoseconds:
                sums.setdefault((kind, it.name), _Sum()).add(nanoseconds, NONE, (it.start + it.end) // 2, it.thread)

    def _outermost_operators(self) -> Iterable[_Named]:
        """The outermost operators of the threads that issue work."""
        table, threads = self.timeline.operators, self.walk.activity.threads
        reached: dict[int, int] = {}
        for it, (start, end, thread) in enumerate(zip(table.start, table.end, table.thread, strict=True)):
            if thread in threads and end > reached.get(thread, start):
                reached[thread] = end
                yield _Named(start, end, table.name_of(it), thread)

    def _outermost_waits(self) -> Iterable[_Named]:
        """The waits for the data loader. A profiler may record the function and the mark around it."""
        activity, reached = self.walk.activity, self.walk.start
        for it in sorted(activity.loader_waits, key=lambda it: (it.start, -it.end)):
            if it.end > reached:
                yield _Named(max(reached, it.start), it.end, it.name, activity.main_thread)
                reached = it.end

    def _contributor(self, key: tuple[PathKind, str], found: _Sum) -> PathContributor:
        kind, name = key
        moment, thread, operator = found.longest.moment, found.longest.thread, ""
        activity = self.walk.activity
        if found.longest.event != NONE:
            launch = self.timeline.device.launch[found.longest.event]
            if launch != NONE:
                moment, thread = self.timeline.calls.start[launch], self.timeline.calls.thread[launch]
                operator = activity.operator_at(moment, thread)
        place = activity.place_at(moment, thread) if thread != NONE else ""
        return PathContributor(
            kind=kind, name=name, nanoseconds=found.nanoseconds, times=found.times, operator=operator, place=place
        )


class _Named(NamedTuple):
    start: int
    end: int
    name: str
    thread: int
