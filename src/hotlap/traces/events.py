"""One trace event as it is written in the file, and how to read one that is not quite JSON.

Only the fields that the analysis needs are declared: msgspec skips the others without making objects of them.
The format is Chrome's "Trace Event Format"; the categories and arguments are those that Kineto writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias, Union, cast

import msgspec

MISSING = -(2**62)
"""The identifier of events without one; no device, stream or correlation has this number."""

Microseconds: TypeAlias = int | float | Decimal

_ARGUMENT_NAMES = {
    "graph": "graph id",
    "stack": "Call stack",
    "external": "External id",
    "shapes": "Input Dims",
    "types": "Input type",
    "strides": "Input Strides",
    "concrete": "Concrete Inputs",
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group_size": "Group size",
    "group": "Process Group Name",
    "group_ranks": "Process Group Ranks",
    "group_sequence": "Seq",
    "sequence": "Sequence number",
    "forward_thread": "Fwd thread id",
    "registers": "registers per thread",
    "shared_memory": "shared memory",
    "blocks": "blocks per SM",
    "warps": "warps per SM",
    "occupancy": "est. achieved occupancy %",
}
NO_TEXT = msgspec.Raw(b"")
"""The value of :attr:`Arguments.stack` for an event without one."""


class Arguments(msgspec.Struct, frozen=True, gc=False, rename=_ARGUMENT_NAMES):
    """The fields of an event's ``args`` that are read."""

    correlation: int = MISSING
    stream: int = MISSING
    device: int = MISSING
    bytes: int = 0
    graph: int = MISSING
    stack: msgspec.Raw = NO_TEXT


class InputArguments(Arguments, frozen=True, gc=False, rename=_ARGUMENT_NAMES):
    """The same with operators' inputs, the links of backward to forward operators, and kernels' launch configurations;
    reading these takes longer, and few analyses need them."""

    external: int = MISSING
    shapes: msgspec.Raw = NO_TEXT
    types: msgspec.Raw = NO_TEXT
    strides: msgspec.Raw = NO_TEXT
    sequence: int = MISSING
    forward_thread: int = 0
    registers: float | None = None
    shared_memory: float | None = None
    blocks: float | None = None
    warps: float | None = None
    occupancy: float | None = None


class DetailedArguments(InputArguments, frozen=True, gc=False, rename=_ARGUMENT_NAMES):
    """The same with collectives' messages, as Kineto writes them on kernels and on ``record_param_comms``. ``flops``
    are the floating-point operations of an operator, where the profiler counted them; ``concrete`` are its arguments
    other than tensors."""

    collective: str = ""
    elements_in: int = 0
    elements_out: int = 0
    dtype: str = ""
    group_size: int = 0
    group: str = ""
    group_ranks: msgspec.Raw = NO_TEXT
    group_sequence: int = MISSING
    flops: msgspec.Raw = NO_TEXT
    concrete: msgspec.Raw = NO_TEXT


_ALLOCATION_NAMES = {
    "bytes": "Bytes",
    "allocated": "Total Allocated",
    "reserved": "Total Reserved",
    "device_type": "Device Type",
    "device": "Device Id",
    "address": "Addr",
}


class AllocationArguments(msgspec.Struct, frozen=True, gc=False, rename=_ALLOCATION_NAMES):
    """The ``args`` of an instant that reports memory: the change, and the totals after it."""

    bytes: int = 0
    allocated: int = MISSING
    reserved: int = MISSING
    device_type: int = MISSING
    device: int = MISSING
    address: int = MISSING


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="X"):
    """An element of ``traceEvents`` that has a duration. ``ts`` and ``dur`` are of type :data:`Microseconds`, ``args``
    is an :class:`Arguments`; the decoder chooses which fields are read."""

    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Any = 0
    dur: Any = -1
    args: Any = Arguments()


class Instant(msgspec.Struct, frozen=True, gc=False, tag_field="ph", tag="i"):
    """An element without a duration; only the memory that it reports is read."""

    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Any = 0
    args: AllocationArguments | None = None

    @property
    def dur(self) -> int:
        """An instant takes no time."""
        return 0


class Mark(msgspec.Struct, frozen=True, gc=False):
    """Any other element: an arrow, an instant, a counter, a name. It is counted, but not read."""


class Batch(NamedTuple):
    """Some consecutive elements of a trace: events, which are exactly of type ``event``, and marks, which are not.

    ``exact`` returns the same with times as decimals, for times whose doubles may have lost digits. Marks of type
    ``instant`` may report memory; it is None if these are not requested.
    """

    elements: list[Any]
    event: type[Event]
    exact: Callable[[], Batch] | None = None
    instant: type[Instant] | None = None


_MARKS = tuple(
    msgspec.defstruct(f"Mark{ord(phase)}", [], bases=(Mark,), frozen=True, gc=False, tag_field="ph", tag=phase)
    for phase in "BEIibnesftSTpFPCMNODRVvac(),"
)
_anything = msgspec.json.Decoder(float_hook=Decimal)

UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of decoding for text that is not JSON, is nested too deeply, or does not fit the declared types."""


class EventDecoder:
    """Decodes events whose arguments are of the given type, and instants if requested."""

    def __init__(self, arguments: type[Arguments], *, instants: bool = False) -> None:
        self._arguments = arguments
        # Times as the machine's numbers are several times faster than decimals.
        self._quick = _event_type("QuickEvent", int | float, arguments)
        self._exact = _event_type("ExactEvent", Decimal, arguments)
        self._quick_instant = _instant_type("QuickInstant", int | float) if instants else None
        self._exact_instant = _instant_type("ExactInstant", Decimal) if instants else None
        self._quick_list = msgspec.json.Decoder(list[_any_of(self._quick, self._quick_instant)])  # type: ignore[misc]

    @cached_property
    def _exact_list(self) -> msgspec.json.Decoder[list[Any]]:
        return msgspec.json.Decoder(list[_any_of(self._exact, self._exact_instant)])  # type: ignore[misc]

    @cached_property
    def _exact_one(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(_any_of(self._exact, self._exact_instant))

    def decode(self, text: bytes) -> Batch:
        """Decode a JSON array of events. Raises one of :data:`UNREADABLE`."""
        return Batch(self._quick_list.decode(text), self._quick, lambda: self._exactly(text), self._quick_instant)

    def _exactly(self, text: bytes) -> Batch:
        return Batch(self._exact_list.decode(text), self._exact, None, self._exact_instant)

    def salvage(self, text: bytes) -> tuple[Event | Mark, bool] | None:
        """Read one malformed event; also return whether its text had to be repaired.

        None when it cannot be read at all.
        """
        for mended, candidate in ((False, text), (True, repaired(text))):
            try:
                return self._exact_one.decode(candidate), mended
            except msgspec.ValidationError:
                event = self._lenient(candidate)
                if event is not None:
                    return event, True
            except UNREADABLE:
                continue
        return None

    def batch_of(self, salvaged: list[Event | Mark]) -> Batch:
        """The result of :meth:`salvage`, as a batch."""
        return Batch(salvaged, self._exact, None, self._exact_instant)

    def _lenient(self, text: bytes) -> Event | Mark | None:
        """An event whose fields have unusual types, each converted where that is possible without guessing."""
        try:
            loose = _anything.decode(text)
        except UNREADABLE:
            return None
        if not isinstance(loose, dict):
            return None
        if loose.get("ph") != "X":
            return Mark()
        args = loose.get("args")
        args = args if isinstance(args, dict) else {}
        return self._exact(
            cat=_as_text(loose.get("cat")),
            name=_as_text(loose.get("name")),
            pid=_as_text(loose.get("pid")),
            tid=_as_text(loose.get("tid")),
            ts=_as_decimal(loose.get("ts"), Decimal("NaN")),
            dur=_as_decimal(loose.get("dur"), Decimal(-1)),
            args=self._arguments(
                correlation=_as_integer(args.get("correlation"), MISSING),
                stream=_as_integer(args.get("stream"), MISSING),
                device=_as_integer(args.get("device"), MISSING),
                bytes=_as_integer(args.get("bytes"), 0),
                graph=_as_integer(args.get("graph id"), MISSING),
            ),
        )


@cache
def decoder(*, with_inputs: bool = False) -> EventDecoder:
    """The decoder of the fields that every analysis needs; on request with operators' inputs, messages and memory."""
    return EventDecoder(DetailedArguments if with_inputs else Arguments, instants=with_inputs)


def _event_type(name: str, time: Any, arguments: type[Arguments]) -> type[Event]:
    fields = [("ts", time, 0), ("dur", time, -1), ("args", arguments, arguments())]
    made = msgspec.defstruct(name, fields, bases=(Event,), frozen=True, gc=False, tag_field="ph", tag="X")
    return cast(type[Event], made)


def _instant_type(name: str, time: Any) -> type[Instant]:
    made = msgspec.defstruct(name, [("ts", time, 0)], bases=(Instant,), frozen=True, gc=False, tag_field="ph", tag="i")
    return cast(type[Instant], made)


def _any_of(event: type[Event], instant: type[Instant] | None) -> Any:
    if instant is None:
        return Union[(event, *_MARKS)]
    marks = [it for it in _MARKS if it.__struct_config__.tag != instant.__struct_config__.tag]
    return Union[(event, instant, *marks)]


_CONTROL_CHARACTERS = bytes(range(32))
_TO_BLANKS = bytes.maketrans(_CONTROL_CHARACTERS, b" " * len(_CONTROL_CHARACTERS))
_BAD_ESCAPE = re.compile(rb'\\(?:u(?![0-9a-fA-F]{4})|(?![u"\\/bfnrt]))')
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_NOT_A_NUMBER = re.compile(rb"(:\s*)[+-]?(?:nan|inf|infinity)(?:\([a-z0-9]*\))?(?=\s*[,}\]])", re.IGNORECASE)


def repaired(text: bytes) -> bytes:
    """Repair the invalid JSON that profilers are known to write.

    Control characters and invalid UTF-8 in names, ``inf`` and ``nan`` as numbers, backslashes of Windows paths, and
    halves of surrogate pairs.
    """
    text = text.translate(_TO_BLANKS)
    text = text.decode("utf-8", "replace").encode("utf-8")
    text = _NOT_A_NUMBER.sub(rb"\1null", text)
    text = _SURROGATE.sub(rb"\\ufffd", text)
    # Pairs of backslashes are escapes too, so every escape is looked at in turn.
    return _ESCAPE.sub(lambda found: _repaired_escape(found.group(), text[found.end() : found.end() + 4]), text)


def _repaired_escape(escape: bytes, behind: bytes) -> bytes:
    return b"\\" + escape if _BAD_ESCAPE.match(escape + behind) else escape


def _as_text(value: Any) -> str:
    return "" if value is None or isinstance(value, (dict, list)) else str(value)


def _as_decimal(value: Any, otherwise: Decimal) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        return otherwise
    try:
        return Decimal(value)
    except InvalidOperation:
        return otherwise


def _as_integer(value: Any, otherwise: int) -> int:
    number = _as_decimal(value, Decimal(otherwise))
    return int(number) if number.is_finite() and abs(number) < 2**64 and number == int(number) else otherwise
