"""Stream a trace file: the values around ``traceEvents``, and the events batch by batch.

The array is cut into pieces after an event, and each piece is decoded at once. A cut is never trusted: a piece that
begins at an event and decodes as a JSON array can only end after one, since JSON is read from left to right without
ambiguity. A piece that does not decode is read event by event, so that one broken event affects no other.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import msgspec

from hotlap.errors import TraceError
from hotlap.traces.events import NO_TEXT, UNREADABLE, Batch, Event, EventDecoder, Mark, repaired
from hotlap.traces.source import ByteSource

MOST_EVENT_BYTES = 16 * 2**20
"""The largest size of an event, or of the text before or after the events."""

_ATTEMPTS_PER_EVENT = 8
_ATTEMPTS_AMONG_BROKEN = 2
"""After an unreadable event another one is likely, and each attempt takes time."""

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN_EVENTS = re.compile(rb"\s*,\s*(?=\{)")
_BOUNDARY = re.compile(rb"\}(?:(\s*,\s*)(?=\{)|\s*\])")
_NEXT_EVENT = re.compile(rb"\}\s*,\s*(?=\{)")
_CLOSING = re.compile(rb"(\}\s*\])\s*(?:,[^{}]*)?\}?\s*\Z")
_TRAILING = re.compile(r"trailing characters \(byte (\d+)\)")
_BEHIND_ARRAY = re.compile(rb"\s*(?:[,}]|\Z)")
_BLANK = b" \t\r\n"


class Reading:
    """The progress of reading a document."""

    def __init__(self) -> None:
        self.events = 0
        self.repaired = 0
        self.unreadable = 0
        self.bytes_read = 0
        self.ended_early = ""


class Surroundings(msgspec.Struct, frozen=True):
    """The values next to ``traceEvents`` that are read, as undecoded JSON of any shape."""

    name: msgspec.Raw = msgspec.field(default=NO_TEXT, name="traceName")
    base_nanoseconds: msgspec.Raw = msgspec.field(default=NO_TEXT, name="baseTimeNanoseconds")
    distributed: msgspec.Raw = msgspec.field(default=NO_TEXT, name="distributedInfo")
    devices: msgspec.Raw = msgspec.field(default=NO_TEXT, name="deviceProperties")


class TraceDocument:
    """Reads one trace. :meth:`batches` yields its events; ``reading`` and :meth:`surroundings` are complete after it.

    Raises :class:`TraceError` for what is not JSON or is not a trace.
    """

    def __init__(self, source: ByteSource, decoder: EventDecoder) -> None:
        self.reading = Reading()
        self._source = source
        self._decoder = decoder
        self._head = b""
        self._foot = b""
        self._is_array = False

    def batches(self) -> Iterator[Batch]:
        """The events in the order of the file."""
        buffer = self._find_events()
        while piece := self._source.read():
            cut = _last_boundary(piece)
            if cut is None:
                piece = _joined(buffer, piece)
                buffer, cut = b"", _last_boundary(piece)
            if cut is None:
                buffer = piece
                self._refuse_endless(buffer, "An event")
                continue
            batch, buffer, closed = self._decode(buffer, piece, cut)
            yield batch
            if closed:
                self._foot = buffer
                self._read_foot()
                return
        batch, self._foot = self._decode_last(buffer)
        yield batch

    def surroundings(self) -> Surroundings:
        """The values next to ``traceEvents``; empty if they cannot be read."""
        if self._is_array:
            return Surroundings()
        for text in (self._head + b"]" + self._foot, self._head + b"]}"):
            for candidate in (text, repaired(text)):
                try:
                    return msgspec.json.decode(candidate, type=Surroundings)
                except UNREADABLE:
                    continue
        return Surroundings()

    def _find_events(self) -> bytes:
        """Read up to the first event and keep the text before it."""
        text = b""
        while piece := self._source.read():
            text = (text + piece).removeprefix(b"\xef\xbb\xbf").lstrip(_BLANK)
            self._refuse_foreign(text)
            if text[:1] == b"[":
                self._is_array = True
                return text[1:]
            found = _EVENTS_KEY.search(text)
            if found:
                self._head = text[: found.end()]
                return text[found.end() :]
            self._refuse_endless(text, "What precedes the events")
        raise self._without_events(text)

    def _decode(self, rest: bytes, piece: bytes, cut: int) -> tuple[Batch, bytes, bool]:
        """Decode the remaining text and a piece up to ``cut``.

        Returns the events, the text after them, and whether the array was closed."""
        text = _joined(b"[", rest, memoryview(piece)[:cut], b"]")
        try:
            batch = self._decoder.decode(text)
        except UNREADABLE as error:
            buffer = _joined(rest, piece)
            end = _array_end(buffer, error)
            if end is None:
                return self._salvage(buffer, last=False)
            return self._counted(_joined(b"[", memoryview(buffer)[: end + 1])), buffer[end + 1 :], True
        self.reading.events += len(batch.elements)
        between = _BETWEEN_EVENTS.match(piece, cut)
        return batch, piece[between.end() if between else cut :], False

    def _counted(self, text: bytes) -> Batch:
        batch = self._decoder.decode(text)
        self.reading.events += len(batch.elements)
        return batch

    def _decode_last(self, buffer: bytes) -> tuple[Batch, bytes]:
        """Read the end of the file: events, the array's end, and the text after it."""
        if buffer.lstrip(_BLANK)[:1] == b"]":
            batch, foot, closed = self._decoder.batch_of([]), buffer.lstrip(_BLANK)[1:], True
        else:
            batch, foot, closed = self._decode_open_end(buffer)
        reading = self.reading
        reading.bytes_read = self._source.bytes_read
        whole = closed and (self._is_array or foot.rstrip(_BLANK).endswith(b"}"))
        if self._source.damage:
            reading.ended_early = self._source.damage
        elif not whole:
            reading.ended_early = "the file stops before its end"
        if not closed:
            reading.bytes_read -= len(foot)
            foot = b""
        return batch, foot

    def _decode_open_end(self, buffer: bytes) -> tuple[Batch, bytes, bool]:
        try:
            self._decoder.decode(b"[" + buffer)
        except UNREADABLE as error:
            end = _array_end(buffer, error)
            if end is None:
                return self._salvage(buffer, last=True)
        else:
            end = buffer.rindex(b"]")
        return self._counted(_joined(b"[", memoryview(buffer)[: end + 1])), buffer[end + 1 :], True

    def _salvage(self, text: bytes, *, last: bool) -> tuple[Batch, bytes, bool]:
        """Read event by event; return them, the undecided text, and whether the array was closed."""
        found: list[Event | Mark] = []
        position, closed = 0, False
        attempts = _ATTEMPTS_PER_EVENT
        while not closed:
            outcome = self._next_event(text, position, attempts, last=last)
            if outcome is None:
                break
            event, position, closed = outcome
            self.reading.events += 1
            if event is None:
                self.reading.unreadable += 1
                attempts = _ATTEMPTS_AMONG_BROKEN
            else:
                attempts = _ATTEMPTS_PER_EVENT
                self.reading.repaired += event[1]
                found.append(event[0])
        return self._decoder.batch_of(found), text[position:], closed

    def _next_event(
        self, text: bytes, position: int, attempts: int, *, last: bool
    ) -> tuple[tuple[Event | Mark, bool] | None, int, bool] | None:
        """The event at ``position`` (None if unreadable), where to continue, and whether the array was closed there.

        None when more text is needed to decide.
        """
        ends_seen = 0
        for found in itertools.islice(_BOUNDARY.finditer(text, position), attempts):
            ends_seen += 1
            event = self._decoder.salvage(text[position : found.start() + 1])
            if event is not None:
                return event, found.end(), found.group(1) is None
        if ends_seen < attempts and not last:
            return None
        following = _NEXT_EVENT.search(text, position)
        if following:
            return None, following.end(), False
        closing = _CLOSING.search(text, position) if last else None
        return (None, closing.end(1), True) if closing else None

    def _read_foot(self) -> None:
        """Read the text after the events, up to a sensible size."""
        while piece := self._source.read():
            if len(self._foot) <= MOST_EVENT_BYTES:
                self._foot += piece
        reading = self.reading
        reading.bytes_read = self._source.bytes_read
        if self._source.damage:
            reading.ended_early = self._source.damage
        elif not self._is_array and not self._foot.rstrip(_BLANK).endswith(b"}"):
            reading.ended_early = "the file stops before its end"

    def _refuse_foreign(self, text: bytes) -> None:
        if text and text[:1] not in b"{[":
            raise self._error("The file is not JSON", "Give a trace that torch.profiler exported (.json or .json.gz).")

    def _refuse_endless(self, text: bytes, what: str) -> None:
        if len(text) > MOST_EVENT_BYTES:
            raise self._error(
                f"{what} is longer than {MOST_EVENT_BYTES // 2**20} MiB, which no trace has",
                "Give a trace that torch.profiler exported.",
            )

    def _without_events(self, text: bytes) -> TraceError:
        if self._source.damage:
            return self._error(f"No event can be read: {self._source.damage}", "Export or copy the trace again.")
        try:
            msgspec.json.decode(text, type=msgspec.Raw)
        except UNREADABLE:
            what = "The file is not JSON, or stops before its first event" if text else "The file is blank"
            return self._error(what, "Export or copy the trace again.")
        return self._error("The file is JSON but no trace: it has no traceEvents", "Give a trace of torch.profiler.")

    def _error(self, what: str, remedy: str) -> TraceError:
        return TraceError(f"{what}.", where=str(self._source.path), remedy=remedy)


def _joined(*parts: bytes | memoryview) -> bytes:
    """Join in one copy; adding three pieces would make two."""
    return b"".join(parts)


def _last_boundary(buffer: bytes) -> int | None:
    """The end of the last event that is apparently followed by another one."""
    end = len(buffer)
    for _ in range(100_000):
        end = buffer.rfind(b"}", 0, end)
        if end < 0:
            return None
        if _BETWEEN_EVENTS.match(buffer, end + 1):
            return end + 1
    return None


def _array_end(buffer: bytes, error: Exception) -> int | None:
    """The position where ``traceEvents`` is closed, if that stopped the decoder."""
    found = _TRAILING.search(str(error))
    if found is None:
        return None
    # The decoder saw one more byte in front: the bracket that we put there.
    end = buffer.rfind(b"]", 0, int(found.group(1)) - 1)
    return end if end >= 0 and _BEHIND_ARRAY.match(buffer, end + 1) else None
