"""The origins of non-finite numbers in a tensor, and which origin is the cause.

Origins belong to storages rather than tensors, since views share them. An operation passes the descent of its operands
on to its results; a tensor that is finite again has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from hotlap.records import BadNumber, NoticedIn, NumberOrigin
from hotlap.runtime.not_finite.ranges import carrier, memory

MOST_UNWRITTEN = 100_000


@dataclass(frozen=True, slots=True)
class Birth:
    """The first appearance of non-finite numbers, in chronological ``order``; ``nan`` if NaN was among them.

    ``ancestry`` is the descent of the operands: empty, or of infinities. ``hidden`` is that of huge operands that
    replaced non-finite numbers.
    """

    order: int
    nan: bool
    record: NumberOrigin
    ancestry: Descent
    hidden: Hidden | None = None

    @property
    def on_purpose(self) -> bool:
        """Whether the script wrote it deliberately, as in a mask; a buffer of infinities is a mask."""
        return self.record.source == "written" or (self.record.source == "state" and not self.nan)


@dataclass(frozen=True, slots=True)
class Descent:
    """The earliest births behind a tensor's numbers, of three kinds: ``written`` deliberately, the first other one
    (``fault``), and the first of those that made NaN."""

    written: Birth | None = None
    fault: Birth | None = None
    nan: Birth | None = None

    def __or__(self, other: Descent) -> Descent:
        return Descent(
            _earlier(self.written, other.written),
            _earlier(self.fault, other.fault),
            _earlier(self.nan, other.nan),
        )


@dataclass(frozen=True, slots=True)
class Hidden:
    """The descent of numbers that are finite again, but huge, and the operation that made them finite."""

    descent: Descent
    record: NumberOrigin


NOTHING = Descent()


def descent_of(birth: Birth) -> Descent:
    """The descent of a tensor with a birth."""
    if birth.on_purpose:
        return Descent(written=birth) | birth.ancestry
    return Descent(fault=birth, nan=birth if birth.nan else None) | birth.ancestry


def bad_number(where: NoticedIn, step: int, nan: bool, descent: Descent, name: str = "") -> BadNumber:
    """The cause of a find; ``nan`` says whether NaN was found.

    NaN is traced to the operation that first made it, and from there to the infinity among its operands, unless the
    script wrote that deliberately: a softmax over a completely masked row is at fault, not the mask. Other infinities
    are not the cause: a mask may be about to remove them. What the script wrote is named only if there is nothing else.
    An overflow of huge numbers that replaced infinities (``nan_to_num``) is traced to the cause of the latter.
    """
    bad = BadNumber(step=step, noticed_in=where, nan=nan, name=name)
    birth = descent.nan if nan and descent.nan is not None else descent.fault
    if birth is None:
        birth = descent.written
        return bad if birth is None else msgspec.structs.replace(bad, origin=birth.record)
    origin = birth.ancestry.fault or birth
    found = msgspec.structs.replace(bad, first_nan=birth.record if birth is not origin else None)
    if origin.hidden is not None and (root := origin.hidden.descent.fault) is not None:
        found = msgspec.structs.replace(found, replaced=origin.hidden.record, overflow=origin.record)
        origin = root.ancestry.fault or root
    written = origin.ancestry.written
    return msgspec.structs.replace(found, origin=origin.record, written=written.record if written is not None else None)


class Descents:
    """The descents of all storages with non-finite numbers that appeared since the check began."""

    def __init__(self) -> None:
        self._known: dict[int, Descent] = {}
        self._hidden: dict[int, Hidden] = {}
        self._unwritten: dict[int, NumberOrigin] = {}

    def of(self, tensor: Any) -> Descent | None:
        """The descent of a non-finite tensor; None if it is unknown."""
        plain = carrier(tensor)
        return None if plain is None else self._known.get(memory(plain)[0])

    def inherit(self, tensor: Any, descent: Descent, *, whole: bool) -> None:
        """Note that the tensor was written and is not finite; with ``whole`` its former contents are gone."""
        plain = carrier(tensor)
        if plain is None:
            return
        key, size = memory(plain)
        before = self._known.get(key)
        kept = before is not None and not (whole and _covers(plain, size))
        self._known[key] = before | descent if before is not None and kept else descent
        self._unwritten.pop(key, None)
        self._hidden.pop(key, None)

    def clear(self, tensor: Any) -> None:
        """Note that the tensor was written and is finite."""
        plain = carrier(tensor)
        if plain is None:
            return
        key, size = memory(plain)
        known = key in self._known or key in self._unwritten or key in self._hidden
        if known and _covers(plain, size):
            self._known.pop(key, None)
            self._unwritten.pop(key, None)
            self._hidden.pop(key, None)

    def hide(self, tensor: Any, hidden: Hidden) -> None:
        """Note that the tensor was written and is finite, but huge, in place of non-finite numbers."""
        plain = carrier(tensor)
        if plain is not None:
            self._hidden[memory(plain)[0]] = hidden

    def hidden(self, tensor: Any) -> Hidden | None:
        """The descent behind the huge numbers of a tensor, if known."""
        plain = carrier(tensor)
        return None if plain is None else self._hidden.get(memory(plain)[0])

    def unwritten(self, tensor: Any, origin: NumberOrigin) -> None:
        """Note that the tensor is uninitialised memory."""
        plain = carrier(tensor)
        if plain is not None and len(self._unwritten) < MOST_UNWRITTEN:
            key, _ = memory(plain)
            self._known.pop(key, None)
            self._hidden.pop(key, None)
            self._unwritten[key] = origin

    def uninitialised(self, tensor: Any) -> NumberOrigin | None:
        """The line that allocated this tensor's memory, if it was not written since."""
        plain = carrier(tensor)
        return None if plain is None else self._unwritten.get(memory(plain)[0])


def _covers(plain: Any, size: int) -> bool:
    return bool(plain.numel() * plain.element_size() >= size)


def _earlier(one: Birth | None, other: Birth | None) -> Birth | None:
    if one is None or other is None:
        return one or other
    return one if one.order <= other.order else other
