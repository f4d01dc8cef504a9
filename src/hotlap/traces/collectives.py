"""The collectives of one trace: which ran, how long, and at which bandwidth.

The bandwidths are those that NCCL's tests report (NVIDIA's nccl-tests, ``doc/PERFORMANCE.md``): algorithm bandwidth is
the size of the operation over its time; bus bandwidth is that times a factor which makes it comparable with the
hardware's, however many ranks take part.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import NamedTuple

from hotlap.traces.collective_records import CollectiveRow
from hotlap.traces.dialects import Kind, is_collective
from hotlap.traces.inputs import shapes_and_types
from hotlap.traces.linking import steps_of
from hotlap.traces.timeline import NONE, Message, Timeline

_MOST_CALLS = 100_000
_MOST_ROWS = 100
_NANOSECONDS = 1e-9

_KINDS = (
    ("all-reduce", re.compile(r"all_?reduce|barrier")),
    ("reduce-scatter", re.compile(r"reduce_?scatter")),
    ("all-gather", re.compile(r"all_?gather")),
    ("all-to-all", re.compile(r"all_?(?:to_?|2_?)all")),
    ("broadcast", re.compile(r"broadcast")),
    ("send and receive", re.compile(r"send|recv")),
    ("reduce", re.compile(r"reduce")),
    ("gather", re.compile(r"gather")),
    ("scatter", re.compile(r"scatter")),
)
"""Collectives by a part of their own or their kernel's name, the longer parts first. NCCL's barrier is an
all-reduce."""

_OF_GLOO = re.compile(r"^gloo:")

UNKNOWN = "collective"
POINT_TO_POINT = "send and receive"
SYNCHRONISING = frozenset({"all-reduce", "reduce-scatter", "all-gather", "all-to-all"})
"""Collectives that end on no rank before all ranks have entered."""

_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16, "UInt16": 2, "UInt32": 4, "UInt64": 8,
}  # fmt: skip
_OF_C10 = {
    "float": "Float", "double": "Double", "c10::Half": "Half", "c10::BFloat16": "BFloat16", "long int": "Long",
    "int": "Int", "short int": "Short", "signed char": "Char", "unsigned char": "Byte", "bool": "Bool",
}  # fmt: skip
"""The types that operators' inputs are named by, as messages name them."""

_BYTES_OF_PREFIX = (("Float8", 1), ("QInt8", 1), ("QUInt8", 1), ("QInt32", 4))


class CollectiveCall(NamedTuple):
    """One collective on one rank. Times are nanoseconds since 1970 by the trace's own clock, if it has such a base.

    ``message`` is None for a trace that does not describe it. ``step`` is the number of the step that launched it.
    """

    kind: str
    start: int
    end: int
    message: Message | None
    step: int | None


def collective_calls(timeline: Timeline) -> tuple[CollectiveCall, ...]:
    """List collective kernels by start, up to a hundred thousand; without any, gloo's on the host."""
    return _kernels(timeline) or _on_host(timeline)


def _on_host(timeline: Timeline) -> tuple[CollectiveCall, ...]:
    """Gloo marks a collective on the thread that runs it, from its start to its end. NCCL's marks say when the host
    issued one."""
    marks, base = timeline.annotations, timeline.facts.base_nanoseconds
    names = marks.named(_OF_GLOO.match)
    found = [event for event, name in enumerate(marks.name) if name in names][:_MOST_CALLS]
    steps = steps_of(timeline.steps, [marks.start[it] for it in found])
    return tuple(
        CollectiveCall(
            kind=kind_of(marks.name_of(event)),
            start=base + marks.start[event],
            end=base + marks.end[event],
            message=_of_gloo(timeline, event),
            step=_number(timeline, step),
        )
        for event, step in zip(found, steps, strict=True)
    )


def _of_gloo(timeline: Timeline, event: int) -> Message | None:
    """The message by the shape and type of the mark's input; None where they were not recorded. Which process group it
    was is not: it counts as that of all ranks."""
    marks = timeline.annotations
    if not marks.inputs or marks.inputs[event] == NONE:
        return None
    shapes, types = shapes_and_types(timeline.inputs[marks.inputs[event]])
    dtype = _OF_C10.get(types[0], "") if types else ""
    if not shapes or not dtype:
        return None
    elements, ranks = sum(map(math.prod, shapes)), timeline.facts.world_size or 0
    gathered = elements * ranks if kind_of(marks.name_of(event)) == "all-gather" else elements
    return Message(
        collective=marks.name_of(event).removeprefix("gloo:"),
        elements_in=elements,
        elements_out=gathered,
        dtype=dtype,
        group_size=ranks,
        group="",
        ranks="",
        sequence=None,
    )


def _kernels(timeline: Timeline) -> tuple[CollectiveCall, ...]:
    events, base = timeline.device, timeline.facts.base_nanoseconds
    by_name = events.named(is_collective)
    described = events.message or [NONE] * len(events)
    found = [
        event
        for event, (kind, name, message) in enumerate(zip(events.kind, events.name, described, strict=True))
        if kind == Kind.KERNEL and (name in by_name or message != NONE)
    ]
    calls = []
    for event in found[:_MOST_CALLS]:
        number = described[event] if described[event] != NONE else _described_by_operator(timeline, event)
        message = timeline.messages[number] if number != NONE else None
        calls.append(
            CollectiveCall(
                kind=kind_of(message.collective if message else events.name_of(event)),
                start=base + events.start[event],
                end=base + events.end[event],
                message=message,
                step=_number(timeline, events.step[event]),
            )
        )
    return tuple(calls)


def _number(timeline: Timeline, step: int) -> int | None:
    """A step's number by its index."""
    return timeline.steps[step].number if step != NONE else None


def _described_by_operator(timeline: Timeline, event: int) -> int:
    """The message of the ``record_param_comms`` that launched a kernel; some versions do not write it on the kernel
    itself."""
    launch, operators = timeline.device.launch[event], timeline.operators
    if launch == NONE or not timeline.messages:
        return NONE
    around = operators.around(timeline.calls.start[launch], timeline.calls.thread[launch])
    return next((operators.message[it] for it in reversed(around) if operators.message[it] != NONE), NONE)


def kind_of(name: str) -> str:
    """``all-reduce`` for ``allreduce_coalesced`` and ``ncclDevKernel_AllReduce_Sum_f32_RING_LL``, and so on."""
    lower = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(lower)), UNKNOWN)


def message_bytes(message: Message) -> int:
    """The size of an operation as NCCL's tests count it: what a rank sends or receives in total, whichever is more. 0
    for a type of unknown size."""
    width = _BYTES.get(message.dtype, 0)
    width = width or next((size for prefix, size in _BYTES_OF_PREFIX if message.dtype.startswith(prefix)), 0)
    return max(message.elements_in, message.elements_out) * width


def bus_factor(kind: str, ranks: int) -> float | None:
    """The factor from algorithm to bus bandwidth; None for a group of one and for unknown collectives."""
    if ranks < 2 or kind == UNKNOWN:
        return None
    if kind == "all-reduce":
        return 2 * (ranks - 1) / ranks
    if kind in ("all-gather", "reduce-scatter", "all-to-all", "gather", "scatter"):
        return (ranks - 1) / ranks
    return 1.0


class Alike(NamedTuple):
    """The properties that the calls of one row share."""

    collective: str
    group: str
    group_size: int
    dtype: str
    message_bytes: int

    def rate(self, calls: int, nanoseconds: int) -> float | None:
        """The algorithm bandwidth of so many calls in that time together, in bytes per second."""
        if not self.message_bytes or nanoseconds <= 0:
            return None
        return self.message_bytes * calls / (nanoseconds * _NANOSECONDS)

    def bus_rate(self, calls: int, nanoseconds: int) -> float | None:
        """The same as bus bandwidth."""
        rate, factor = self.rate(calls, nanoseconds), bus_factor(self.collective, self.group_size)
        return rate * factor if rate is not None and factor is not None else None


def alike(call: CollectiveCall) -> Alike:
    """The row that a call belongs to."""
    message = call.message
    if message is None:
        return Alike(call.kind, "", 0, "", 0)
    return Alike(call.kind, message.group, message.group_size, message.dtype, message_bytes(message))


def collective_rows(calls: tuple[CollectiveCall, ...]) -> tuple[CollectiveRow, ...]:
    """Group the calls by collective, group, type and size, the longest total first."""
    lengths: defaultdict[Alike, list[int]] = defaultdict(list)
    for it in calls:
        lengths[alike(it)].append(it.end - it.start)
    rows = [_row(key, of) for key, of in lengths.items()]
    return tuple(sorted(rows, key=lambda it: -it.nanoseconds)[:_MOST_ROWS])


def _row(key: Alike, lengths: list[int]) -> CollectiveRow:
    calls, total, shortest = len(lengths), sum(lengths), min(lengths)
    return CollectiveRow(
        collective=key.collective,
        group=key.group,
        group_size=key.group_size,
        dtype=key.dtype,
        message_bytes=key.message_bytes,
        calls=calls,
        nanoseconds=total,
        shortest_nanoseconds=shortest,
        algorithm_bytes_per_second=key.rate(calls, total),
        bus_bytes_per_second=key.bus_rate(calls, total),
        best_bus_bytes_per_second=key.bus_rate(1, shortest),
    )
