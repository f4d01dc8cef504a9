"""Which operators took the time: their own on the host, and that of the kernels which they launched themselves.

Operators on one thread nest as calls do, and with them the calls that launch kernels and, where the profiler recorded
them, the user's Python functions. One walk along each thread finds for each operator what it called, for each launch
the operator that made it, and the line of the user's code that both ran for.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from hotlap.trace.dialects import is_users_frame
from hotlap.trace.events import MISSING
from hotlap.trace.hosts import frames_of
from hotlap.trace.inputs import shapes_and_types
from hotlap.trace.reader import read_trace
from hotlap.trace.records import OperatorRow
from hotlap.trace.timeline import NONE, Timeline

_FRAME, _OPERATOR, _CALL = range(3)
"""Of what begins and ends together the first encloses the others."""


def operators(timeline: Timeline, *, most: int | None = None) -> tuple[OperatorRow, ...]:
    """All operators by name, inputs and place, those with most device time first, then those with most host time.

    Where the trace marks steps, only operators that began between the first one's start and the last one's end. A
    timeline that was read without operators' inputs is read once more from its file, which raises :class:`TraceError`
    when that is gone. ``most`` bounds the rows.
    """
    if not timeline.with_inputs:
        timeline = read_trace(timeline.facts.path, with_inputs=True)
    return _OperatorTable(timeline).rows(most)


class _Key(NamedTuple):
    """Indices of what makes operators alike."""

    name: int
    inputs: int
    place: str


class _Open(NamedTuple):
    """Something that has begun and not yet ended: when it ends, the operator that runs and the user's line."""

    end: int
    operator: int
    place: str


class _OperatorTable:
    """For every operator of one trace its own time, its kernels' time and its place."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        table = timeline.operators
        self.own = [end - start for start, end in zip(table.start, table.end, strict=True)]
        self.device = [0] * len(table)
        self.place = [""] * len(table)
        self._launches: dict[int, int] = {}
        self._places_of_stacks: dict[int, str] = {}
        self._users = {number for number, it in enumerate(timeline.frames.names) if is_users_frame(it)}
        for events in self._by_thread().values():
            self._walk(sorted(events))
        self._add_device_time()

    def rows(self, most: int | None) -> tuple[OperatorRow, ...]:
        alike: defaultdict[_Key, list[int]] = defaultdict(list)
        table = self.timeline.operators
        for event in self._in_steps():
            alike[_Key(table.name[event], table.inputs[event], self.place[event])].append(event)
        found = [self._row(key, events) for key, events in alike.items()]
        return tuple(sorted(found, key=lambda it: (-it.device_nanoseconds, -it.host_nanoseconds))[:most])

    def _row(self, key: _Key, events: list[int]) -> OperatorRow:
        timeline = self.timeline
        shapes, types = shapes_and_types(timeline.inputs[key.inputs]) if key.inputs != NONE else ((), ())
        return OperatorRow(
            name=timeline.operators.names[key.name],
            shapes=shapes,
            types=types,
            calls=len(events),
            host_nanoseconds=sum(self.own[it] for it in events),
            device_nanoseconds=sum(self.device[it] for it in events),
            place=key.place,
        )

    def _in_steps(self) -> list[int]:
        starts, steps = self.timeline.operators.start, self.timeline.steps
        if not steps:
            return list(range(len(starts)))
        first, last = min(it.start for it in steps), max(it.end for it in steps)
        return [event for event, start in enumerate(starts) if first <= start < last]

    def _by_thread(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """For each thread with operators its frames, operators and launches: start, end downwards, kind, index."""
        timeline = self.timeline
        launching = set(timeline.device.launch) - {NONE}
        found: dict[int, list[tuple[int, int, int, int]]] = {it: [] for it in timeline.operators.thread}
        for kind, table in ((_FRAME, timeline.frames), (_OPERATOR, timeline.operators), (_CALL, timeline.calls)):
            for event, (start, end, thread) in enumerate(zip(table.start, table.end, table.thread, strict=True)):
                if thread in found and (kind != _CALL or event in launching):
                    found[thread].append((start, -end, kind, event))
        return found

    def _walk(self, events: list[tuple[int, int, int, int]]) -> None:
        """Along one thread, everything in the order in which it began."""
        ends, frames, users = self.timeline.operators.end, self.timeline.frames, self._users
        open_now: list[_Open] = []
        nothing = _Open(0, NONE, "")
        for start, negative_end, kind, event in events:
            while open_now and open_now[-1].end <= start:
                open_now.pop()
            around = open_now[-1] if open_now else nothing
            if kind == _CALL:
                self._launches[event] = around.operator
            elif kind == _FRAME:
                place = frames.name_of(event) if frames.name[event] in users else around.place
                open_now.append(_Open(-negative_end, around.operator, place))
            else:
                if around.operator != NONE:
                    self.own[around.operator] -= min(-negative_end, ends[around.operator]) - start
                self.place[event] = self._place_in_stack(event) or around.place
                open_now.append(_Open(-negative_end, event, self.place[event]))

    def _place_in_stack(self, event: int) -> str:
        """The user's innermost line of the call stack that old versions wrote with each operator."""
        stack = self.timeline.operators.stack[event] if self.timeline.stacks else NONE
        if stack == NONE:
            return ""
        if stack not in self._places_of_stacks:
            frames = frames_of(self.timeline.stacks[stack])
            self._places_of_stacks[stack] = next(filter(is_users_frame, frames), "")
        return self._places_of_stacks[stack]

    def _add_device_time(self) -> None:
        """Give every device event to the operator that launched it; that which the event names, where the trace lacks
        the launch."""
        device, external = self.timeline.device, self.timeline.operators.external
        named = {identifier: event for event, identifier in enumerate(external) if identifier != MISSING}
        for start, end, launch, identifier in zip(
            device.start, device.end, device.launch, device.external, strict=True
        ):
            operator = named.get(identifier, NONE) if launch == NONE else self._launches.get(launch, NONE)
            if operator != NONE:
                self.device[operator] += end - start
