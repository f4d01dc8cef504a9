"""Events turned into columns, batch by batch, so that no event object outlives its batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal

import msgspec
import numpy as np

from hotlap.trace.dialects import KIND_OF_CATEGORY, LAST_DEVICE_KIND
from hotlap.trace.events import LONGEST_NAME, MISSING, NO_TEXT, Batch, Event
from hotlap.trace.intervals import Times
from hotlap.trace.timeline import NONE, Column, Mask

LONGEST_EVENT = 24 * 3600 * 10**9
"""Nanoseconds. Nothing that a profiler records lasts longer than a day; a longer event is a defect of the trace."""

LATEST_TIME = 2**62

_LONGEST_STACK = 16_384
_WHOLE_NANOSECOND = Decimal(1)


class Numbering:
    """Gives every distinct name, thread and call stack a small number, in the order in which they come."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.threads: dict[tuple[str, str], int] = {}
        self.stacks: dict[bytes, int] = {}
        self._known_names: dict[str, int] = {}
        self._known_threads: dict[int | str, dict[int | str, int]] = {}

    def of_names(self, names: Sequence[str]) -> Column:
        """The numbers of a batch's names. Names beyond any sensible length are cut off."""
        known = self._known_names
        for name in dict.fromkeys(names):
            if name not in known:
                known[name] = self.names.setdefault(name[:LONGEST_NAME], len(self.names))
        return np.fromiter(map(known.__getitem__, names), dtype=np.int32, count=len(names))

    def of_threads(self, processes: Sequence[int | str], threads: Sequence[int | str]) -> Column:
        """The numbers of a batch's threads. Some versions write a thread's number as text."""
        if len(set(processes)) > 1:
            pairs = zip(processes, threads, strict=True)
            return np.array([self._of_process(process, (thread,))[thread] for process, thread in pairs], dtype=np.int32)
        known = self._of_process(processes[0], dict.fromkeys(threads))
        return np.fromiter(map(known.__getitem__, threads), dtype=np.int32, count=len(threads))

    def _of_process(self, process: int | str, threads: Iterable[int | str]) -> dict[int | str, int]:
        known = self._known_threads.setdefault(process, {})
        for thread in threads:
            if thread not in known:
                shown = (str(process)[:LONGEST_NAME], str(thread)[:LONGEST_NAME])
                known[thread] = self.threads.setdefault(shown, len(self.threads))
        return known

    def of_stacks(self, stacks: Sequence[msgspec.Raw]) -> Column:
        """The numbers of a batch's call stacks, as they are written in the file."""
        if set(map(id, stacks)) == {id(NO_TEXT)}:
            return np.full(len(stacks), NONE, dtype=np.int32)
        texts = [bytes(it)[:_LONGEST_STACK] for it in stacks]
        numbers = [self.stacks.setdefault(it, len(self.stacks)) if it else NONE for it in texts]
        return np.array(numbers, dtype=np.int32)


class ColumnBuilder:
    """Collects batches; :meth:`device_columns` and :meth:`host_columns` hand everything out, once."""

    def __init__(self) -> None:
        self.numbering = Numbering()
        self.other: Counter[str] = Counter()
        self.invalid = 0
        self._device: dict[str, list[Column]] = {}
        self._host: dict[str, list[Column]] = {}

    def add(self, batch: Batch) -> None:
        """Take in one batch."""
        self.other.update(batch.marks)
        events = batch.events
        kinds = list(map(KIND_OF_CATEGORY.get, [it.cat for it in events]))
        if None in kinds:
            self.other.update([it.cat for it, kind in zip(events, kinds, strict=True) if kind is None])
        device = [it for it, kind in zip(events, kinds, strict=True) if kind is not None and kind <= LAST_DEVICE_KIND]
        host = [it for it, kind in zip(events, kinds, strict=True) if kind is not None and kind > LAST_DEVICE_KIND]
        if device:
            self._add_device(device)
        if host:
            self._add_host(host)

    def device_columns(self) -> dict[str, Column]:
        """All accelerator events in order of their start."""
        names = ("start", "end", "name", "kind", "device", "stream", "bytes", "graph", "correlation")
        return _joined(self._device, names)

    def host_columns(self) -> dict[str, Column]:
        """All host events in order of their start."""
        return _joined(self._host, ("start", "end", "name", "kind", "thread", "stack", "correlation"))

    def _add_device(self, events: list[Event]) -> None:
        common, valid = self._common(events)
        arguments = [it.args for it in events]
        common["device"] = integers([it.device for it in arguments])
        common["stream"] = integers([it.stream for it in arguments])
        common["bytes"] = integers([it.bytes for it in arguments])
        common["graph"] = integers([it.graph for it in arguments])
        _fill(common["device"], [it.pid for it in events])
        _fill(common["stream"], [it.tid for it in events])
        _append(self._device, common, valid)

    def _add_host(self, events: list[Event]) -> None:
        common, valid = self._common(events)
        common["thread"] = self.numbering.of_threads([it.pid for it in events], [it.tid for it in events])
        common["stack"] = self.numbering.of_stacks([it.args.stack for it in events])
        _append(self._host, common, valid)

    def _common(self, events: list[Event]) -> tuple[dict[str, Column], Mask]:
        start, known = nanoseconds([it.ts for it in events])
        duration, sensible = nanoseconds([it.dur for it in events])
        valid = known & sensible & (duration >= 0) & (duration <= LONGEST_EVENT)
        self.invalid += int((~valid).sum())
        columns: dict[str, Column] = {
            "start": start,
            "end": start + np.where(valid, duration, 0),
            "name": self.numbering.of_names([it.name for it in events]),
            "kind": np.array([KIND_OF_CATEGORY[it.cat] for it in events], dtype=np.int32),
            "correlation": integers([it.args.correlation for it in events]),
        }
        return columns, valid


def nanoseconds(microseconds: Sequence[int | float | Decimal]) -> tuple[Times, Mask]:
    """Exact nanoseconds, rounded to the nearest where the file has more digits; and which of them are usable.

    Doubles must lie below :data:`hotlap.trace.events.FLOAT_IS_EXACT_BELOW`; larger fractions come as decimals.
    """
    types = set(map(type, microseconds))
    if Decimal in types:
        return _from_decimals(microseconds)
    if float not in types:
        try:
            whole = np.array(microseconds, dtype=np.int64)
        except OverflowError:
            return _from_decimals(microseconds)
        usable = np.abs(whole) <= LATEST_TIME // 1000
        return np.where(usable, whole, 0) * 1000, usable
    values = np.array(microseconds, dtype=np.float64)
    usable = np.abs(values) <= LATEST_TIME / 1000
    values = np.where(usable, values, 0.0)
    # The whole part is exact; only the fraction is rounded, once.
    whole_part = np.floor(values)
    fraction = np.rint((values - whole_part) * 1000)
    return whole_part.astype(np.int64) * 1000 + fraction.astype(np.int64), usable


def integers(numbers: Sequence[int]) -> Column:
    """A column of identifiers; those beyond 64 bits wrap around and stay distinct from small ones."""
    try:
        return np.array(numbers, dtype=np.int64)
    except OverflowError:
        return np.array([(it + 2**63) % 2**64 - 2**63 for it in numbers], dtype=np.int64)


def _from_decimals(values: Sequence[int | float | Decimal]) -> tuple[Times, Mask]:
    found = np.zeros(len(values), dtype=np.int64)
    usable = np.zeros(len(values), dtype=bool)
    limit = LATEST_TIME // 1000
    for index, value in enumerate(map(Decimal, values)):
        # Compared before it is scaled: an exponent of a million digits must not be written out.
        if value.is_finite() and -limit <= value <= limit:
            found[index] = int((value * 1000).quantize(_WHOLE_NANOSECOND))
            usable[index] = True
    return found, usable


def _fill(column: Column, otherwise: Sequence[int | str]) -> None:
    """Where the arguments name no device or stream, the track that the event is drawn on does."""
    for index in np.flatnonzero(column == MISSING).tolist():
        digits = str(otherwise[index]).rpartition(" ")[2]
        column[index] = int(digits) if digits.isdecimal() and len(digits) < 18 else MISSING


def _append(into: dict[str, list[Column]], columns: dict[str, Column], valid: Mask) -> None:
    whole = bool(valid.all())
    for name, column in columns.items():
        into.setdefault(name, []).append(column if whole else column[valid])


def _joined(parts: dict[str, list[Column]], names: Sequence[str]) -> dict[str, Column]:
    """The batches in one column each, sorted by start; in the order of the file where several start together."""
    if not parts:
        return {name: np.zeros(0, dtype=np.int64) for name in names}
    # Popped one by one, so that the batches and the whole are never both in memory.
    joined: dict[str, Column] = {name: np.concatenate(parts.pop(name)) for name in names}
    order = np.argsort(joined["start"], kind="stable")
    return {name: column[order] for name, column in joined.items()}
