"""What collectives send, and how many operations an operator takes, as they are written in the file."""

from __future__ import annotations

import math

import msgspec

from hotlap.trace.convolutions import NAMES as CONVOLUTIONS
from hotlap.trace.convolutions import convolution_flops
from hotlap.trace.events import MISSING, NO_TEXT, UNREADABLE, DetailedArguments, Event
from hotlap.trace.timeline import NONE, Message

_MOST_MESSAGES = 2**20
_LONGEST_NAME = 200
_LONGEST_RANKS = 1000
_MOST_ELEMENTS = 2**50
_MOST_RANKS = 2**24
_MOST_FLOPS = 2**62


class Messages(dict[Message, int]):
    """Gives every distinct message a number; a kernel and its operator share theirs."""

    def number(self, arguments: DetailedArguments) -> int:
        """The number of an event's message; :data:`NONE` where it has none, and for those that are too many."""
        if not arguments.collective:
            return NONE
        message = Message(
            collective=arguments.collective[:_LONGEST_NAME],
            elements_in=_between(arguments.elements_in, _MOST_ELEMENTS),
            elements_out=_between(arguments.elements_out, _MOST_ELEMENTS),
            dtype=arguments.dtype[:_LONGEST_NAME],
            group_size=_between(arguments.group_size, _MOST_RANKS),
            group=arguments.group[:_LONGEST_NAME],
            ranks=_ranks(arguments.group_ranks),
            sequence=None if arguments.group_sequence == MISSING else arguments.group_sequence,
        )
        known = self.get(message)
        if known is not None:
            return known
        if len(self) >= _MOST_MESSAGES:
            return NONE
        self[message] = number = len(self)
        return number


def flops_of(event: Event) -> int:
    """The operations of an operator: as the profiler counted them, else those of a convolution by its arguments; 0
    where neither is written or makes sense."""
    arguments: DetailedArguments = event.args
    if arguments.flops != NO_TEXT:
        return _counted(arguments.flops)
    if event.name in CONVOLUTIONS and arguments.concrete != NO_TEXT:
        return convolution_flops(event.name, bytes(arguments.shapes), bytes(arguments.concrete))
    return 0


def _counted(written: msgspec.Raw) -> int:
    try:
        flops = msgspec.json.decode(written, type=int | float)
    except UNREADABLE:
        return 0
    return int(flops) if math.isfinite(flops) and 0 < flops <= _MOST_FLOPS else 0


def _between(number: int, most: int) -> int:
    return min(max(0, number), most)


def _ranks(written: msgspec.Raw) -> str:
    """The ranks of a group without their quotes; newer versions write them as text, others as a list."""
    return bytes(written)[:_LONGEST_RANKS].decode("utf-8", "replace").strip('"')
