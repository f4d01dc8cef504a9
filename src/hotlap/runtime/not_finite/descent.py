"""Where the numbers of a tensor that is not finite came from, and which of those to blame.

Kept for pieces of memory rather than for tensors, since views share theirs. An operation hands the descent of what it
reads on to what it writes; a tensor that is finite again has none.
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
    """The moment at which numbers that are not finite came up, the ``order``-th of its kind; ``nan`` says that NaN was
    among them. ``ancestry`` is the descent of what the operation was given: empty, or of infinities. ``hidden`` is that
    of huge numbers that it was given, and that stand for such of which nothing is left."""

    order: int
    nan: bool
    record: NumberOrigin
    ancestry: Descent
    hidden: Hidden | None = None

    @property
    def on_purpose(self) -> bool:
        """Whether the script wrote it itself, as masks do; a buffer of infinities is such a mask."""
        return self.record.source == "written" or (self.record.source == "state" and not self.nan)


@dataclass(frozen=True, slots=True)
class Descent:
    """The earliest births of three kinds that a tensor's numbers go back to: ``written`` on purpose, the first that was
    not (``fault``), and the first of those that made NaN."""

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
    """The descent of numbers that are finite again, but huge, and what made them so."""

    descent: Descent
    record: NumberOrigin


NOTHING = Descent()


def descent_of(birth: Birth) -> Descent:
    """What a birth adds to the descent of the tensors that it is in."""
    if birth.on_purpose:
        return Descent(written=birth) | birth.ancestry
    return Descent(fault=birth, nan=birth if birth.nan else None) | birth.ancestry


def bad_number(where: NoticedIn, step: int, nan: bool, descent: Descent, name: str = "") -> BadNumber:
    """The find and whom to blame for it, ``nan`` saying that NaN was among what was found.

    NaN goes back to the operation that first made it, and that to the infinity it was given, unless the script wrote
    that one on purpose: a softmax over a row that is masked throughout is at fault, not the mask. Infinities next to
    the NaN that it did not come from are not blamed: a mask may be about to take them away. Only where nothing else
    came up is it told what the script wrote. An overflow of huge numbers that stand for infinities (``nan_to_num``)
    goes back to what made these.
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
    """The descents of all memory that holds something not finite, as far as it came up since the check began."""

    def __init__(self) -> None:
        self._known: dict[int, Descent] = {}
        self._hidden: dict[int, Hidden] = {}
        self._unwritten: dict[int, NumberOrigin] = {}

    def of(self, tensor: Any) -> Descent | None:
        """The descent of a tensor that is not finite; None where it came from is not known."""
        plain = carrier(tensor)
        return None if plain is None else self._known.get(memory(plain)[0])

    def inherit(self, tensor: Any, descent: Descent, *, whole: bool) -> None:
        """The tensor was written to and is not finite; ``whole`` says that none of what it held before is left."""
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
        """The tensor was written to and is finite."""
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
        """The tensor was written to; its numbers are finite, but huge, and stand for such that were not."""
        plain = carrier(tensor)
        if plain is not None:
            self._hidden[memory(plain)[0]] = hidden

    def hidden(self, tensor: Any) -> Hidden | None:
        """What the huge numbers of a tensor stand for, as far as that is known."""
        plain = carrier(tensor)
        return None if plain is None else self._hidden.get(memory(plain)[0])

    def unwritten(self, tensor: Any, origin: NumberOrigin) -> None:
        """The tensor is fresh memory that holds anything."""
        plain = carrier(tensor)
        if plain is not None and len(self._unwritten) < MOST_UNWRITTEN:
            key, _ = memory(plain)
            self._known.pop(key, None)
            self._hidden.pop(key, None)
            self._unwritten[key] = origin

    def uninitialised(self, tensor: Any) -> NumberOrigin | None:
        """The line that allocated the memory of this tensor, if nothing has written it since."""
        plain = carrier(tensor)
        return None if plain is None else self._unwritten.get(memory(plain)[0])


def _covers(plain: Any, size: int) -> bool:
    return bool(plain.numel() * plain.element_size() >= size)


def _earlier(one: Birth | None, other: Birth | None) -> Birth | None:
    if one is None or other is None:
        return one or other
    return one if one.order <= other.order else other
