"""Events turned into columns, batch by batch, so that no event object outlives its batch."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import compress, islice
from operator import add, itemgetter, le

import msgspec

from hotlap.trace.dialects import ANNOTATING_OPERATOR, KIND_OF_CATEGORY, LAST_DEVICE_KIND, Kind
from hotlap.trace.events import MISSING, NO_TEXT, Batch, Event, Mark, Microseconds, phase_of
from hotlap.trace.inputs import pair_of_inputs
from hotlap.trace.numbering import Names, Texts, Threads, UsefulFrames
from hotlap.trace.timeline import NONE, Calls, DeviceEvents, Events, HostEvents, Operators

LONGEST_EVENT = 24 * 3600 * 10**9
"""Nanoseconds. Nothing that a profiler records lasts longer than a day; a longer event is a defect of the trace."""

LATEST_TIME = 2**62
NO_TIME = 2**63
"""What :func:`nanoseconds` makes of what is no number."""

_LARGEST_COPY = 2**40
_LONGEST_CATEGORY = 200
_MOST_CATEGORIES = 1000
_WHOLE_NANOSECOND = Decimal(1)
_PRODUCT_IS_EXACT_BELOW = 2.0**42
"""Microseconds. Below this, a double times a thousand is off by less than half a nanosecond."""


class ColumnBuilder:
    """Collects batches. After :meth:`finish` the events of each kind are in the order of their starts; in the order of
    the file where several start together."""

    def __init__(self, *, with_inputs: bool = False) -> None:
        self.device = DeviceEvents()
        self.calls = Calls()
        self.operators = Operators()
        self.annotations = HostEvents()
        self.frames = HostEvents()
        self.overhead = HostEvents()
        self.threads = Threads()
        self.stacks = Texts()
        self.inputs = Texts()
        self._other: Counter[str] = Counter()
        self._marks: defaultdict[type[Mark], int] = defaultdict(int)
        self.invalid = 0
        self.frames_left_out = 0
        self._hosts = (self.calls, self.operators, self.annotations, self.frames, self.overhead)
        self._with_inputs = with_inputs
        self._numbers: defaultdict[Events, Names] = defaultdict(Names)
        self._useful = UsefulFrames()

    def add(self, batch: Batch) -> None:
        """Take in one batch."""
        event, marks = batch.event, self._marks
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        for it in batch.elements:
            if type(it) is event:
                groups[it.cat].append(it)
            else:
                marks[type(it)] += 1
        for category, events in groups.items():
            kind = KIND_OF_CATEGORY.get(category)
            if kind is None:
                self._count(category, len(events))
            elif kind <= LAST_DEVICE_KIND:
                self._add_device(kind, events)
            else:
                self._add_host(kind, events)

    @property
    def other(self) -> Counter[str]:
        """What is only counted, by category or by what kind of mark it is."""
        found = Counter(self._other)
        for mark, count in self._marks.items():
            found[phase_of(mark)] += count
        return found

    @property
    def host_events(self) -> int:
        """How many host events there were, those included that no analysis can make use of."""
        return sum(map(len, self._hosts)) + self.frames_left_out

    def _count(self, category: str, events: int) -> None:
        category = category[:_LONGEST_CATEGORY]
        known = category in self._other or len(self._other) < _MOST_CATEGORIES
        self._other[category if known else "other categories"] += events

    def finish(self) -> None:
        """Put everything in order; nothing can be added after it."""
        self._move_annotations()
        for table in (self.device, *self._hosts):
            table.names = list(self._numbers[table])
            _sort(table)

    def _add_device(self, kind: int, events: list[Event]) -> None:
        table = self.device
        events = self._add_common(table, events)
        arguments = [it.args for it in events]
        table.kind.extend([kind] * len(events))
        table.device.extend(_identifiers([it.device for it in arguments], (it.pid for it in events)))
        table.stream.extend(_identifiers([it.stream for it in arguments], (it.tid for it in events)))
        table.bytes.extend(_clipped([it.bytes for it in arguments], _LARGEST_COPY))
        table.graph.extend([it.graph for it in arguments])
        table.correlation.extend([it.correlation for it in arguments])
        if self._with_inputs:
            table.external.extend([it.external for it in arguments])

    def _add_host(self, kind: int, events: list[Event]) -> None:
        if kind == Kind.CALL:
            self.calls.correlation.extend([it.args.correlation for it in self._add_threaded(self.calls, events)])
        elif kind == Kind.OPERATOR:
            self._add_operators(events)
        elif kind == Kind.PYTHON:
            useful = [it for it in events if self._useful[it.name]]
            self.frames_left_out += len(events) - len(useful)
            self._add_threaded(self.frames, useful)
        else:
            self._add_threaded(self.annotations if kind == Kind.ANNOTATION else self.overhead, events)

    def _add_operators(self, events: list[Event]) -> None:
        table = self.operators
        arguments = [it.args for it in self._add_threaded(table, events)]
        stacks = [it.stack for it in arguments]
        if self.stacks or stacks.count(NO_TEXT) < len(stacks):
            table.stack.extend([NONE] * (len(table) - len(stacks) - len(table.stack)))
            table.stack.extend(_numbers_of_texts(stacks, self.stacks))
        if self._with_inputs:
            table.external.extend([it.external for it in arguments])
            shapes, types = [it.shapes for it in arguments], [it.types for it in arguments]
            table.inputs.extend(self.inputs[pair_of_inputs(*it)] for it in zip(shapes, types, strict=True))

    def _add_threaded(self, table: HostEvents, events: list[Event]) -> list[Event]:
        """Fill the columns that all host events have; returns those of the events that were taken."""
        events = self._add_common(table, events)
        processes = {it.pid for it in events}
        if len(processes) == 1:
            (known,) = map(self.threads.of_process, processes)
            table.thread.extend(map(known.__getitem__, [it.tid for it in events]))
        else:
            table.thread.extend(self.threads.of_process(it.pid)[it.tid] for it in events)
        return events

    def _add_common(self, table: Events, events: list[Event]) -> list[Event]:
        """Fill the columns that all events have; those without a sensible time are left out."""
        if not events:
            return events
        start, length = nanoseconds([it.ts for it in events]), nanoseconds([it.dur for it in events])
        if (
            min(length) < 0 or max(length) > LONGEST_EVENT or max(start) > LATEST_TIME or min(start) < -LATEST_TIME
        ):  # fmt: skip
            sensible = [
                -LATEST_TIME <= began <= LATEST_TIME and 0 <= took <= LONGEST_EVENT
                for began, took in zip(start, length, strict=True)
            ]
            self.invalid += sensible.count(False)
            events = list(compress(events, sensible))
            start, length = list(compress(start, sensible)), list(compress(length, sensible))
        table.start.extend(start)
        table.end.extend(map(add, start, length))
        table.name.extend(map(self._numbers[table].__getitem__, [it.name for it in events]))
        return events

    def _move_annotations(self) -> None:
        """Annotations that old profilers wrote as operators become annotations."""
        operators, annotations = self.operators, self.annotations
        names = list(self._numbers[operators])
        annotating = {number for number, it in enumerate(names) if ANNOTATING_OPERATOR.match(it)}
        if not annotating:
            return
        moved = [it in annotating for it in operators.name]
        numbers = self._numbers[annotations]
        annotations.name.extend(numbers[names[it]] for it in compress(operators.name, moved))
        for column in ("start", "end", "thread"):
            getattr(annotations, column).extend(compress(getattr(operators, column), moved))
        stayed = [not it for it in moved]
        for column in operators.columns:
            setattr(operators, column, list(compress(getattr(operators, column), stayed)))


def nanoseconds(times: Sequence[Microseconds]) -> list[int]:
    """Exact nanoseconds, rounded to the nearest where the file has more digits; :data:`NO_TIME` for what is none.

    Doubles must lie below :data:`hotlap.trace.events.FLOAT_IS_EXACT_BELOW`; larger fractions come as decimals.
    """
    types = set(map(type, times))
    if Decimal in types:
        return [_from_decimal(Decimal(it)) for it in times]
    if float not in types:
        return [it * 1000 for it in times]  # type: ignore[misc]
    # The nearest double is off by a quarter of a nanosecond at most, and so is its product, which is the quick way.
    if min(times) > -_PRODUCT_IS_EXACT_BELOW and max(times) < _PRODUCT_IS_EXACT_BELOW:
        return [round(it * 1000) for it in times]
    # The whole part is exact; only the fraction is rounded, once.
    return [whole * 1000 + round((it - whole) * 1000) for it, whole in zip(times, map(math.floor, times), strict=True)]


def _from_decimal(time: Decimal) -> int:
    # Compared before it is scaled: an exponent of a million digits must not be written out.
    if not (time.is_finite() and -LATEST_TIME <= time <= LATEST_TIME):
        return NO_TIME
    return int((time * 1000).quantize(_WHOLE_NANOSECOND))


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
    """Where the arguments name no device or stream, the track that the event is drawn on does."""
    if MISSING not in numbers:
        return numbers
    return [_digits(track) if it == MISSING else it for it, track in zip(numbers, otherwise, strict=True)]


def _clipped(numbers: list[int], most: int) -> list[int]:
    """Sizes between zero and a limit, which holds the sums of absurd ones within bounds."""
    if not numbers or (min(numbers) >= 0 and max(numbers) <= most):
        return numbers
    return [min(max(0, it), most) for it in numbers]


def _digits(track: int | str) -> int:
    digits = str(track).rpartition(" ")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 18 else MISSING


def _sort(table: Events) -> None:
    """By start, and by the order of the file where several start together."""
    start = table.start
    if all(map(le, start, islice(start, 1, None))):
        return
    in_order = itemgetter(*sorted(range(len(start)), key=start.__getitem__))
    for name in table.columns:
        column = getattr(table, name)
        if column:
            setattr(table, name, list(in_order(column)))
