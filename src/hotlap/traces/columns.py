"""Events turned into columns, batch by batch, so that no event object outlives its batch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import compress, islice
from operator import itemgetter, le
from typing import Any

import msgspec

from hotlap.traces.dialects import ANNOTATING_OPERATOR, KIND_OF_CATEGORY, LAST_DEVICE_KIND, MODULE_PREFIX, Kind
from hotlap.traces.events import MISSING, NO_TEXT, Batch, Event
from hotlap.traces.flops import flops_of
from hotlap.traces.inputs import pair_of_inputs
from hotlap.traces.messages import Messages
from hotlap.traces.numbering import Configurations, Devices, Names, Texts, Threads, UsefulFrames
from hotlap.traces.timeline import (
    NONE,
    Allocations,
    Annotations,
    Calls,
    DeviceEvents,
    Events,
    HostEvents,
    KernelConfiguration,
    Operators,
)
from hotlap.traces.times import DigitsLostError, TimedEvents

_LARGEST_COPY = 2**40
_LARGEST_MEMORY = 2**50
_LONGEST_CATEGORY = 200
_MOST_CATEGORIES = 1000
_MEMORY = "[memory]"
_MARKS = "arrows, instants, counters and names"


class ColumnBuilder:
    """Collect batches; after :meth:`finish` the events of each kind are sorted by start, equal starts in the order of
    the file."""

    def __init__(self, *, with_inputs: bool = False) -> None:
        self.device = DeviceEvents()
        self.calls = Calls()
        self.operators = Operators()
        self.annotations = Annotations()
        self.frames = HostEvents()
        self.overhead = HostEvents()
        self.modules = HostEvents()
        self.allocations = Allocations()
        self.threads = Threads()
        self.stacks = Texts()
        self.inputs = Texts()
        self.configurations = Configurations()
        self.messages = Messages()
        self.other: Counter[str] = Counter()
        self.invalid = 0
        self._frames_left_out = 0
        self._host_of_kind: dict[int, HostEvents] = {
            Kind.CALL: self.calls, Kind.OPERATOR: self.operators, Kind.ANNOTATION: self.annotations,
            Kind.PYTHON: self.frames, Kind.OVERHEAD: self.overhead,
            Kind.MODULE: self.modules,
        }  # fmt: skip
        self._with_inputs = with_inputs
        self._numbers: defaultdict[Events, Names] = defaultdict(Names)
        self._useful = UsefulFrames()
        self._devices = Devices()

    def add(self, batch: Batch) -> None:
        """Add one batch."""
        event = batch.event
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for it in batch.elements:
            if type(it) is event:
                groups[it.cat].append(it)
        try:
            timed = [(kind, TimedEvents(events)) for kind, events in self._of_known_kinds(groups)]
            memory = TimedEvents(_memory_marks(batch))
        except DigitsLostError:
            assert batch.exact is not None, "only a batch with doubles can have lost digits"
            self.add(batch.exact())
            return
        for kind, events in timed:
            self.invalid += events.invalid
            if kind <= LAST_DEVICE_KIND:
                self._add_device(kind, events)
            else:
                self._add_host(kind, events)
        if memory.events:
            self._add_allocations(memory)
        self._count_rest(batch, groups, timed)

    def _of_known_kinds(self, groups: dict[str, list[Event]]) -> Iterator[tuple[int, list[Event]]]:
        """Split events by kind; keep useful Python functions only, with those of modules apart."""
        for category, events in groups.items():
            kind = KIND_OF_CATEGORY.get(category)
            if kind == Kind.PYTHON:
                yield kind, [it for it in events if self._useful[it.name]]
                if self._with_inputs:
                    yield Kind.MODULE, [it for it in events if it.name.startswith(MODULE_PREFIX)]
            elif kind is not None:
                yield kind, events

    def _count_rest(self, batch: Batch, groups: dict[str, list[Event]], timed: list[tuple[int, TimedEvents]]) -> None:
        """Count what was not kept: marks, events of other kinds, and Python functions that no analysis uses."""
        known = 0
        for category, events in groups.items():
            if category in KIND_OF_CATEGORY:
                known += len(events)
            else:
                self._count(category, len(events))
        self._frames_left_out += known - sum(len(it.events) + it.invalid for _, it in timed)
        self._count(_MARKS, len(batch.elements) - sum(map(len, groups.values())))

    @property
    def host_events(self) -> int:
        """The number of host events, including those that no analysis uses."""
        return sum(map(len, self._host_of_kind.values())) + self._frames_left_out

    @property
    def split_devices(self) -> dict[int, int]:
        """The original numbers of devices that were renumbered, since another track had the same number."""
        return self._devices.split

    def _count(self, category: str, events: int) -> None:
        if not events:
            return
        category = category[:_LONGEST_CATEGORY]
        known = category in self.other or len(self.other) < _MOST_CATEGORIES
        self.other[category if known else "other categories"] += events

    def finish(self) -> None:
        """Sort all columns; nothing can be added afterwards."""
        self._move_annotations()
        for table in (self.device, self.allocations, *self._host_of_kind.values()):
            table.names = list(self._numbers[table])
            _sort(table)

    def _add_device(self, kind: int, timed: TimedEvents) -> None:
        table, events = self.device, timed.events
        self._add_common(table, timed)
        arguments = [it.args for it in events]
        table.kind.extend([kind] * len(events))
        devices = _identifiers([it.device for it in arguments], (it.pid for it in events))
        table.device.extend(map(self._devices.number, devices, (it.pid for it in events)))
        table.stream.extend(_identifiers([it.stream for it in arguments], (it.tid for it in events)))
        table.bytes.extend(_clipped([it.bytes for it in arguments], _LARGEST_COPY))
        table.graph.extend([it.graph for it in arguments])
        table.correlation.extend([it.correlation for it in arguments])
        if self._with_inputs:
            table.external.extend([it.external for it in arguments])
            table.configuration.extend(self.configurations[_configuration(it)] for it in arguments)
            table.message.extend(map(self.messages.number, arguments))

    def _add_allocations(self, timed: TimedEvents) -> None:
        table, arguments = self.allocations, [it.args for it in timed.events]
        self._add_common(table, timed)
        table.thread.extend(self.threads.of_process(it.pid)[it.tid] for it in timed.events)
        table.change.extend(min(max(-_LARGEST_MEMORY, it.bytes), _LARGEST_MEMORY) for it in arguments)
        for column in ("allocated", "reserved"):
            written = [getattr(it, column) for it in arguments]
            getattr(table, column).extend(it if 0 <= it <= _LARGEST_MEMORY else MISSING for it in written)
        table.device_type.extend([it.device_type for it in arguments])
        table.device.extend([it.device for it in arguments])
        table.address.extend([it.address for it in arguments])

    def _add_host(self, kind: int, timed: TimedEvents) -> None:
        table = self._host_of_kind[kind]
        self._add_common(table, timed)
        processes = {it.pid for it in timed.events}
        if len(processes) == 1:
            (known,) = map(self.threads.of_process, processes)
            table.thread.extend(map(known.__getitem__, [it.tid for it in timed.events]))
        else:
            table.thread.extend(self.threads.of_process(it.pid)[it.tid] for it in timed.events)
        if kind == Kind.CALL:
            self.calls.correlation.extend([it.args.correlation for it in timed.events])
        elif kind == Kind.ANNOTATION and self._with_inputs:
            self.annotations.inputs.extend(self._inputs_of([it.args for it in timed.events]))
        elif kind == Kind.OPERATOR:
            self._add_arguments([it.args for it in timed.events])
            if self._with_inputs:
                self.operators.flops.extend(map(flops_of, timed.events))

    def _add_arguments(self, arguments: list[Any]) -> None:
        """Fill the columns that only operators have."""
        table = self.operators
        stacks = [it.stack for it in arguments]
        if self.stacks or stacks.count(NO_TEXT) < len(stacks):
            table.stack.extend([NONE] * (len(table) - len(stacks) - len(table.stack)))
            table.stack.extend(_numbers_of_texts(stacks, self.stacks))
        if self._with_inputs:
            table.external.extend([it.external for it in arguments])
            table.sequence.extend([it.sequence for it in arguments])
            table.forward_thread.extend([it.forward_thread for it in arguments])
            table.inputs.extend(self._inputs_of(arguments))
            table.message.extend(map(self.messages.number, arguments))

    def _inputs_of(self, arguments: list[Any]) -> Iterator[int]:
        return (self.inputs[pair_of_inputs(it.shapes, it.types, it.strides)] for it in arguments)

    def _add_common(self, table: Events, timed: TimedEvents) -> None:
        """Fill the columns that all events have."""
        table.start.extend(timed.start)
        table.end.extend(timed.end)
        table.name.extend(map(self._numbers[table].__getitem__, [it.name for it in timed.events]))

    def _move_annotations(self) -> None:
        """Turn annotations that old profilers wrote as operators into annotations."""
        operators, annotations = self.operators, self.annotations
        names = list(self._numbers[operators])
        annotating = {number for number, it in enumerate(names) if ANNOTATING_OPERATOR.match(it)}
        if not annotating:
            return
        moved = [it in annotating for it in operators.name]
        numbers = self._numbers[annotations]
        annotations.name.extend(numbers[names[it]] for it in compress(operators.name, moved))
        for column in ("start", "end", "thread", "inputs"):
            getattr(annotations, column).extend(compress(getattr(operators, column), moved))
        stayed = [not it for it in moved]
        for column in operators.columns:
            setattr(operators, column, list(compress(getattr(operators, column), stayed)))


def _memory_marks(batch: Batch) -> list[Any]:
    """The marks that report memory; they are counted with the other marks."""
    if batch.instant is None:
        return []
    return [it for it in batch.elements if type(it) is batch.instant and it.name == _MEMORY and it.args]


def _configuration(arguments: Any) -> KernelConfiguration:
    return KernelConfiguration(
        arguments.registers, arguments.shared_memory, arguments.blocks, arguments.warps, arguments.occupancy
    )


def _numbers_of_texts(texts: list[msgspec.Raw], known: Texts) -> list[int]:
    """The numbers of texts as they are written in the file."""
    found: list[int] = []
    last, number = b"", NONE
    for it in texts:
        text = bytes(it)
        # An operator and those that it calls share their stack, and comparing is faster than looking up.
        if text != last:
            last, number = text, known[text]
        found.append(number)
    return found


def _identifiers(numbers: list[int], otherwise: Iterable[int | str]) -> list[int]:
    """Take device and stream from the event's track if its arguments name none."""
    if MISSING not in numbers:
        return numbers
    return [_digits(track) if it == MISSING else it for it, track in zip(numbers, otherwise, strict=True)]


def _clipped(numbers: list[int], most: int) -> list[int]:
    """Clamp sizes between zero and a limit, so that absurd ones cannot overflow sums."""
    if not numbers or (min(numbers) >= 0 and max(numbers) <= most):
        return numbers
    return [min(max(0, it), most) for it in numbers]


def _digits(track: int | str) -> int:
    digits = str(track).rpartition(" ")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 18 else MISSING


def _sort(table: Events) -> None:
    """Sort by start; equal starts keep the order of the file."""
    start = table.start
    if all(map(le, start, islice(start, 1, None))):
        return
    in_order = itemgetter(*sorted(range(len(start)), key=start.__getitem__))
    for name in table.columns:
        column = getattr(table, name)
        if column:
            setattr(table, name, list(in_order(column)))
