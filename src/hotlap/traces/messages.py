"""Collectives' messages, as recorded in the file."""

from __future__ import annotations

import msgspec

from hotlap.traces.events import MISSING, DetailedArguments
from hotlap.traces.timeline import NONE, Message

_MOST_MESSAGES = 2**20
_LONGEST_NAME = 200
_LONGEST_RANKS = 1000
_MOST_ELEMENTS = 2**50
_MOST_RANKS = 2**24


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


def _between(number: int, most: int) -> int:
    return min(max(0, number), most)


def _ranks(written: msgspec.Raw) -> str:
    """The ranks of a group without their quotes; newer versions write them as text, others as a list."""
    return bytes(written)[:_LONGEST_RANKS].decode("utf-8", "replace").strip('"')
