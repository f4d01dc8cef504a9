"""Host activity while a device waited: spans by the meaning of their names, and the events around a moment."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

import msgspec

from hotlap.traces.dialects import (
    BACKWARD,
    BLOCKING_COPY,
    COMMUNICATION_ON_HOST,
    COMPILATION,
    COPY_CALL,
    LOADER,
    SETTING_UP,
    SYNCHRONISATION,
    Kind,
    copy_direction,
    is_users_frame,
)
from hotlap.traces.events import UNREADABLE
from hotlap.traces.intervals import Intervals, Span, merged, outside, union
from hotlap.traces.timeline import NONE, HostEvents, Selection, Timeline

_COPY_BEFORE_WAIT = 100_000
"""Nanoseconds. A wait that begins this soon after the same thread's copy call waits for that copy."""

_CALLS_LOOKED_BACK = 1000

_CODE_LOADING = 1_000_000
"""Nanoseconds. A launch takes some microseconds; one that takes this long before an idle device also does something
else."""

_COPYING = 50_000
"""Nanoseconds. Launching a copy takes microseconds."""

_FIRST_USE = 10_000_000
"""Nanoseconds. A set-up call that takes this long is a first use: of the context, a library, a pool of memory."""

_FEWEST_STEPS = 3
_EVERY_STEP = 0.5
"""A call in more than this share of the steps is not a first use."""

_LEGACY_FRAME = re.compile(r"^(?P<path>.+?)\((?P<line>\d+)\): (?P<function>\S+)$")


class LoaderWait(NamedTuple):
    """A wait for the data loader."""

    start: int
    end: int
    name: str


class Wait(NamedTuple):
    """A call in which the host waits for the device; ``upload``: for a copy to the device."""

    end: int
    call: int
    upload: bool


class HostActivity:
    """The host's activity on some threads of a trace, usually those that issue work to a device."""

    def __init__(self, timeline: Timeline, threads: Iterable[int]) -> None:
        self.timeline = timeline
        self.threads = frozenset(threads)

    @cached_property
    def loader_waits(self) -> list[LoaderWait]:
        """These threads' waits for the data loader."""
        tables = (self.timeline.annotations, self.timeline.operators, self.timeline.frames)
        return [
            LoaderWait(table.start[it], table.end[it], table.name_of(it))
            for table in tables
            for it in self._of_names(table, table.named(LOADER.search))
        ]

    @cached_property
    def loader(self) -> Intervals:
        """The time in which a thread waited for the data loader."""
        return union((it.start, it.end) for it in self.loader_waits)

    @cached_property
    def compilation(self) -> Intervals:
        """The time in which a thread compiled, loaded code, or captured a graph.

        The first launch of a kernel loads its code, which shows as a long launch call.
        """
        return union(chain(self._spans(COMPILATION, *self.timeline.host), self._loading_launches()))

    @cached_property
    def initialisation(self) -> Intervals:
        """The time of initialisation on first use: long calls that only set up, unless most steps have them."""
        calls = self.timeline.calls
        long = [
            it
            for it in self._of_names(calls, calls.named(SETTING_UP.search))
            if calls.end[it] - calls.start[it] >= _FIRST_USE
        ]
        usual = self._in_most_steps(long)
        return union(calls.spans([it for it in long if calls.name[it] not in usual]))

    def _in_most_steps(self, calls: list[int]) -> frozenset[int]:
        """The names of set-up calls in most steps; none if there are too few steps."""
        steps, table = self.timeline.steps, self.timeline.calls
        if len(steps) < _FEWEST_STEPS:
            return frozenset()
        starts = [it.start for it in steps]
        seen = {(table.name[it], bisect_right(starts, table.start[it])) for it in calls}
        often = Counter(name for name, _ in seen)
        return frozenset(name for name, count in often.items() if count > _EVERY_STEP * len(steps))

    @cached_property
    def copying(self) -> Intervals:
        """The time inside calls that copied to or from pageable memory.

        Such a call returns only when that memory was read or written; other copies only launch."""
        calls, within = self.timeline.calls, self._calls_that_copied("DtoD")
        long = [
            it
            for it in self._of_names(calls, calls.named(COPY_CALL.search))
            if calls.end[it] - calls.start[it] >= _COPYING and it not in within
        ]
        return union(calls.spans(long))

    @cached_property
    def communication(self) -> Intervals:
        """The time inside the host part of collectives."""
        return union(self._spans(COMMUNICATION_ON_HOST, self.timeline.operators, self.timeline.annotations))

    @cached_property
    def profiler(self) -> Intervals:
        """The profiler's own overhead. Its events carry no thread."""
        return merged(zip(self.timeline.overhead.start, self.timeline.overhead.end, strict=True))

    @cached_property
    def operators(self) -> Intervals:
        """The time inside an operator or a call."""
        operators = merged(self._all_spans(self.timeline.operators))
        # Nearly all calls are made by operators.
        return union([*operators, *outside(self._all_spans(self.timeline.calls), operators)])

    @cached_property
    def backward(self) -> Intervals:
        """The time of autograd's engine: inside its operators, and between two of them unless another operator ran.

        The engine is not Python, and frees the memory of the forward pass as it proceeds."""
        table = self.timeline.operators
        called = union(self._spans(BACKWARD, table))
        others = union(outside(self._all_spans(table), called))
        between = ((before[1], after[0]) for before, after in pairwise(called))
        return union([*called, *(it for it in between if not others.within(*it))])

    @cached_property
    def waits(self) -> list[Wait]:
        """The calls in which a thread waits for the device, in order of their end."""
        calls = self.timeline.calls
        blocking = calls.named(BLOCKING_COPY.search)
        waiting = self._of_names(calls, blocking | calls.named(SYNCHRONISATION.search))
        found = [Wait(calls.end[it], it, self._uploads(it, calls.name[it] in blocking)) for it in waiting]
        return sorted(found, key=lambda it: it.end)

    @cached_property
    def wait_ends(self) -> list[int]:
        """When the host returned from each of :attr:`waits`."""
        return [it.end for it in self.waits]

    def _uploads(self, wait: int, blocking: bool) -> bool:
        """Whether a wait is for a copy to the device: by itself, or by the thread's call just before it."""
        calls = self.timeline.calls
        if blocking:
            return wait in self._upload_calls
        for call in range(wait - 1, max(NONE, wait - 1 - _CALLS_LOOKED_BACK), -1):
            if calls.thread[call] == calls.thread[wait]:
                return calls.start[wait] - calls.end[call] < _COPY_BEFORE_WAIT and call in self._upload_calls
        return False

    def call_that_filled(self, start: int, end: int) -> int:
        """The call that fills most of a window and at least half of it, or :data:`NONE`."""
        calls = self.timeline.calls
        most, found = (end - start) / 2, NONE
        for it in calls.overlapping(start, end):
            if calls.thread[it] in self.threads:
                filled = min(calls.end[it], end) - max(calls.start[it], start)
                if filled >= most:
                    most, found = filled, it
        return found

    def downloads(self, call: int) -> bool:
        """Whether a call issued a copy from the device to the host."""
        return call in self._download_calls

    @cached_property
    def main_thread(self) -> int:
        """The thread that marks the steps, else the one with most operators; :data:`NONE` for none."""
        marking = [it.thread for it in self.timeline.steps if it.thread in self.threads]
        counted = Counter(it for it in self.timeline.operators.thread if it in self.threads)
        return marking[0] if marking else max(counted, key=counted.__getitem__, default=NONE)

    def loader_in(self, start: int, end: int) -> str:
        """The name of the loader wait that fills most of a window; empty if none overlaps it."""
        waits = [it for it in self.loader_waits if it.start < end and it.end > start]
        longest = max(waits, key=lambda it: min(it.end, end) - max(it.start, start), default=None)
        return longest.name if longest else ""

    def operator_at(self, moment: int, thread: int) -> str:
        """The outermost operator that ran at a moment; empty if none did."""
        operators = self.timeline.operators
        return next(map(operators.name_of, operators.around(moment, thread)), "")

    def place_at(self, moment: int, thread: int) -> str:
        """The user's innermost Python function at a moment, as ``file(line): name``; empty if unknown.

        In newer traces the line is where the function begins; in those with call stacks it is the executed line.
        """
        frames = self.timeline.frames
        names = [frames.name_of(it) for it in frames.around(moment, thread)] or self._recorded_stack(moment, thread)
        return next(filter(is_users_frame, reversed(names)), "")

    def _recorded_stack(self, moment: int, thread: int) -> list[str]:
        """The call stack that old versions wrote with each operator, the outermost frame first."""
        if not self.timeline.stacks:
            return []
        operators = self.timeline.operators
        for it in reversed(operators.around(moment, thread)):
            if operators.stack[it] != NONE:
                return frames_of(self.timeline.stacks[operators.stack[it]])[::-1]
        return []

    def _of_names(self, table: HostEvents, names: frozenset[int]) -> list[int]:
        """These threads' events with one of the names."""
        if not names:
            return []
        found = [event for event, name in enumerate(table.name) if name in names]
        if self.threads.issuperset(table.threads):
            return found
        return [it for it in found if table.thread[it] in self.threads]

    def _spans(self, pattern: re.Pattern[str], *tables: HostEvents) -> Iterator[Span]:
        for table in tables:
            yield from table.spans(self._of_names(table, table.named(pattern.search)))

    def _all_spans(self, table: HostEvents) -> Iterable[Span]:
        threads = self.threads
        spans = zip(table.start, table.end, strict=True)
        if threads.issuperset(table.threads):
            return spans
        return (span for span, thread in zip(spans, table.thread, strict=True) if thread in threads)

    def _loading_launches(self) -> Iterator[Span]:
        """The long launch calls of kernels that had not run before."""
        events, calls = self.timeline.device, self.timeline.calls
        # From the last event to the first, so that of each name the first one stays.
        first = dict(zip(reversed(events.name), range(len(events) - 1, -1, -1), strict=True))
        launches = {events.launch[it] for it in first.values() if events.kind[it] == Kind.KERNEL} - {NONE}
        spans = calls.spans(sorted(launches))
        return (it for it in spans if it[1] - it[0] >= _CODE_LOADING)

    @cached_property
    def _upload_calls(self) -> frozenset[int]:
        """The calls that issued a copy from the host to the device."""
        return self._calls_that_copied("HtoD")

    @cached_property
    def _download_calls(self) -> frozenset[int]:
        return self._calls_that_copied("DtoH")

    def _calls_that_copied(self, direction: str) -> frozenset[int]:
        events = self.timeline.device
        copies = [it for it, kind in enumerate(events.kind) if kind == Kind.COPY]
        names = {it for it in events.of(copies, events.name) if copy_direction(events.names[it]) == direction}
        return frozenset(events.launch[it] for it in copies if events.name[it] in names) - {NONE}


def working_threads(timeline: Timeline, selected: Selection) -> frozenset[int]:
    """The threads that issued the selected device events.

    If no event has a launch: those that mark the steps, else those that call the accelerator's runtime, else all with
    operators or marks."""
    issuing = issuing_threads(timeline, selected)
    if issuing:
        return issuing
    marking = frozenset(it.thread for it in timeline.steps)
    return marking or timeline.calls.threads or timeline.operators.threads | timeline.annotations.threads


def issuing_threads(timeline: Timeline, selected: Selection) -> frozenset[int]:
    """The threads that issued the selected device events."""
    launch, thread = timeline.device.launch, timeline.calls.thread
    return frozenset(thread[it] for it in set(timeline.device.of(selected, launch)) if it != NONE)


def frames_of(stack: bytes) -> list[str]:
    """The frames of a recorded stack, the innermost first."""
    try:
        text = msgspec.json.decode(stack, type=str)
    except UNREADABLE:
        return []
    return [it for it in text.split(";") if _LEGACY_FRAME.match(it)]
