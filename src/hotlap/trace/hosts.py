"""What the host did while a device waited: spans by what their names mean, and what encloses a moment."""

from __future__ import annotations

import re
import sys
from functools import cached_property

import msgspec
import numpy as np

from hotlap.trace.dialects import (
    BLOCKING_COPY,
    COMMUNICATION_ON_HOST,
    COMPILATION,
    LOADER,
    SYNCHRONISATION,
    Kind,
    copy_direction,
    is_users_frame,
)
from hotlap.trace.events import UNREADABLE
from hotlap.trace.intervals import Intervals, Times, union
from hotlap.trace.timeline import NONE, Column, Mask, Timeline, is_kind

_COPY_BEFORE_WAIT = 100_000
"""Nanoseconds. A wait that begins this soon after the same thread's copy call waits for that copy."""

_CODE_LOADING = 1_000_000
"""Nanoseconds. A launch takes some microseconds; one that takes this long before an idle device does more than that."""

_LEGACY_FRAME = re.compile(r"^(?P<path>.+?)\((?P<line>\d+)\): (?P<function>\S+)$")


class HostActivity:
    """The host's side of one trace, looked at from the threads that issue work to a device."""

    def __init__(self, timeline: Timeline, selected: Mask) -> None:
        self.timeline = timeline
        launches = timeline.device.launch[selected]
        self.threads = np.unique(timeline.host.thread[launches[launches != NONE]])
        self.issuing = np.isin(timeline.host.thread, self.threads)

    @cached_property
    def loader_events(self) -> Mask:
        """Which host events are an issuing thread's waits for the data loader."""
        return self._named(LOADER)

    @cached_property
    def loader(self) -> Intervals:
        """When an issuing thread waited for the data loader."""
        return self._spans(self.loader_events)

    @cached_property
    def compilation(self) -> Intervals:
        """When it compiled, loaded code, or captured a graph.

        The first launch of a kernel loads its code, which shows as a long launch call.
        """
        return self._spans(self._named(COMPILATION) | self._loading_launches())

    @cached_property
    def communication(self) -> Intervals:
        """When it was inside a collective's host part."""
        return self._spans(self._named(COMMUNICATION_ON_HOST))

    @cached_property
    def profiler(self) -> Intervals:
        """When the profiler itself held things up. Its events carry no thread."""
        return self._spans(is_kind(self.timeline.host.kind, Kind.OVERHEAD))

    @cached_property
    def operators(self) -> Intervals:
        """When an issuing thread was inside an operator or a call."""
        return self._spans(self.issuing & is_kind(self.timeline.host.kind, Kind.OPERATOR, Kind.CALL))

    @cached_property
    def calls(self) -> Mask:
        """Which host events are calls of an issuing thread into the accelerator's runtime or driver."""
        return self.issuing & is_kind(self.timeline.host.kind, Kind.CALL)

    @cached_property
    def waits(self) -> Column:
        """The calls in which an issuing thread waits for the device, in order of their end."""
        names = self.timeline.named(SYNCHRONISATION) | self.timeline.named(BLOCKING_COPY)
        found = np.flatnonzero(self.calls & names[self.timeline.host.name])
        return found[np.argsort(self.timeline.host.end[found], kind="stable")]

    @cached_property
    def wait_uploads(self) -> Mask:
        """For each of :attr:`waits` whether it waits for a copy from the host to the device."""
        timeline, host, waits = self.timeline, self.timeline.host, self.waits
        uploads = np.zeros(len(waits), dtype=bool)
        calls = np.flatnonzero(self.calls)
        by_thread = calls[np.lexsort((host.start[calls], host.thread[calls]))]
        position = np.empty(len(host), dtype=np.int64)
        position[by_thread] = np.arange(len(by_thread))
        copy_of = self._upload_calls()
        blocking = timeline.named(BLOCKING_COPY)[host.name[waits]] if len(waits) else uploads
        place = position[waits] if len(waits) else np.zeros(0, dtype=np.int64)
        previous = by_thread[np.maximum(place - 1, 0)] if len(waits) else place
        soon = (
            (place > 0)
            & (host.thread[previous] == host.thread[waits])
            & (host.start[waits] - host.end[previous] < _COPY_BEFORE_WAIT)
        )
        uploads[blocking] = copy_of[waits[blocking]]
        uploads[~blocking] = (soon & copy_of[previous])[~blocking]
        return uploads

    def enclosing(self, moment: int, thread: int, *kinds: Kind) -> list[int]:
        """The events of a thread that a moment lies in, the outermost first."""
        host = self.timeline.host
        begun = int(np.searchsorted(host.start, moment, side="right"))
        around = (host.end[:begun] >= moment) & (host.thread[:begun] == thread)
        around &= is_kind(host.kind[:begun], *kinds)
        found = np.flatnonzero(around)
        return [int(it) for it in found[np.lexsort((-host.end[found], host.start[found]))]]

    def longest_between(self, start: int, end: int, chosen: Mask) -> int:
        """Of the chosen events of issuing threads the one that fills most of a window, or :data:`NONE`."""
        host = self.timeline.host
        begun = int(np.searchsorted(host.start, end, side="left"))
        inside = np.flatnonzero((host.end[:begun] > start) & chosen[:begun] & self.issuing[:begun])
        if not len(inside):
            return NONE
        filled = np.minimum(host.end[inside], end) - np.maximum(host.start[inside], start)
        return int(inside[np.argmax(filled)])

    def operator_at(self, moment: int, thread: int) -> str:
        """The outermost operator that ran then; empty where none did."""
        found = self.enclosing(moment, thread, Kind.OPERATOR)
        names = [self.timeline.name_of(it) for it in found]
        return next((it for it in names if not it.startswith("ProfilerStep")), "")

    def place_at(self, moment: int, thread: int) -> str:
        """The user's innermost Python function that ran then, as ``file(line): name``; empty where unknown.

        In newer traces the line is where the function begins; in those with call stacks it is the very line.
        """
        frames = [self.timeline.name_of(it) for it in self._python_at(moment, thread)]
        if not frames:
            frames = self._recorded_stack(moment, thread)
        return next((it for it in reversed(frames) if is_users_frame(it, _STANDARD_LIBRARY)), "")

    def _python_at(self, moment: int, thread: int) -> list[int]:
        return self.enclosing(moment, thread, Kind.PYTHON) if self._has_python else []

    def _recorded_stack(self, moment: int, thread: int) -> list[str]:
        """The call stack that old versions wrote with each operator, the outermost frame first."""
        if not self.timeline.stacks:
            return []
        for event in reversed(self.enclosing(moment, thread, Kind.OPERATOR)):
            number = int(self.timeline.host.stack[event])
            if number != NONE:
                return _frames(self.timeline.stacks[number])[::-1]
        return []

    @cached_property
    def _has_python(self) -> bool:
        return bool((self.timeline.host.kind == Kind.PYTHON).any())

    def _named(self, pattern: re.Pattern[str]) -> Mask:
        return self.issuing & self.timeline.named(pattern)[self.timeline.host.name]

    def _spans(self, chosen: Mask) -> Intervals:
        host = self.timeline.host
        return union(host.start[chosen], host.end[chosen])

    def _loading_launches(self) -> Mask:
        """The long launch calls of kernels that had not run before."""
        events, host = self.timeline.device, self.timeline.host
        kernels = np.flatnonzero((events.kind == Kind.KERNEL) & (events.launch != NONE))
        order = kernels[np.argsort(events.launch[kernels], kind="stable")]
        _, first = np.unique(events.name[order], return_index=True)
        calls = events.launch[order[first]]
        found = np.zeros(len(host), dtype=bool)
        found[calls[host.end[calls] - host.start[calls] >= _CODE_LOADING]] = True
        return found

    def _upload_calls(self) -> Mask:
        """Which host events are calls that issued a copy from the host to the device."""
        timeline = self.timeline
        upload = np.fromiter((copy_direction(it) == "HtoD" for it in timeline.names), dtype=bool)
        events = timeline.device
        copies = (events.kind == Kind.COPY) & (events.launch != NONE)
        found = np.zeros(len(timeline.host), dtype=bool)
        found[events.launch[copies & upload[events.name]]] = True
        return found


_STANDARD_LIBRARY = frozenset(sys.stdlib_module_names)


def _frames(raw: bytes) -> list[str]:
    """The frames of a recorded stack, the innermost first."""
    try:
        text = msgspec.json.decode(raw, type=str)
    except UNREADABLE:
        return []
    return [it for it in text.split(";") if _LEGACY_FRAME.match(it)]


def moments_in(times: Times, starts: Times, ends: Times) -> Mask:
    """For each window ``(start, end]`` whether any of the sorted times lies in it."""
    return np.searchsorted(times, ends, side="right") > np.searchsorted(times, starts, side="right")
