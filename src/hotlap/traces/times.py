"""Starts and ends of events: exact nanoseconds of the file's numbers, and which of them are valid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import compress
from operator import add

from hotlap.traces.events import Event, Microseconds

LONGEST_EVENT = 24 * 3600 * 10**9
"""Nanoseconds. Nothing that a profiler records lasts longer than a day; a longer event is a defect of the trace."""

LATEST_TIME = 2**62
NO_TIME = 2**63
"""The result of :func:`nanoseconds` for a value that is not a number."""

FLOAT_IS_EXACT_BELOW = 2.0**43
"""Below this many microseconds the nearest double lies within half a nanosecond of the written number."""

_PRODUCT_IS_EXACT_BELOW = 2.0**42
"""Microseconds. Below this even a double times a thousand is off by less than half a nanosecond: by a quarter for the
nearest double, and by another for the nearest product."""

_WHOLE_NANOSECOND = Decimal(1)


class DigitsLostError(Exception):
    """A time is a double so large that digits of the file may have been lost in it."""


class TimedEvents:
    """Select the events with a valid time, their starts and ends; also count the others."""

    def __init__(self, events: list[Event]) -> None:
        start, length = nanoseconds([it.ts for it in events]), nanoseconds([it.dur for it in events])
        self.events = events
        self.invalid = 0
        if events and not _all_sensible(start, length):
            sensible = [_all_sensible([began], [took]) for began, took in zip(start, length, strict=True)]
            self.invalid = sensible.count(False)
            self.events = list(compress(events, sensible))
            start, length = list(compress(start, sensible)), list(compress(length, sensible))
        self.start = start
        self.end = list(map(add, start, length))


def _all_sensible(start: list[int], length: list[int]) -> bool:
    return (
        min(length) >= 0 and max(length) <= LONGEST_EVENT and min(start) >= -LATEST_TIME and max(start) <= LATEST_TIME
    )


def nanoseconds(times: Sequence[Microseconds]) -> list[int]:
    """Exact nanoseconds, rounded to the nearest where the file has more digits; :data:`NO_TIME` for what is none.

    Raises :class:`DigitsLostError` for doubles that are too large; then the times are wanted as decimals.
    """
    types = set(map(type, times))
    if Decimal in types:
        return [_from_decimal(Decimal(it)) for it in times]
    if float not in types:
        return [it * 1000 for it in times]  # type: ignore[misc]
    largest = max(max(times), -min(times))
    if largest < _PRODUCT_IS_EXACT_BELOW:
        return [round(it * 1000) for it in times]
    if largest >= FLOAT_IS_EXACT_BELOW:
        raise DigitsLostError
    # The whole part is exact; only the fraction is rounded, once.
    return [whole * 1000 + round((it - whole) * 1000) for it, whole in zip(times, map(math.floor, times), strict=True)]


def _from_decimal(time: Decimal) -> int:
    # Compared before it is scaled: an exponent of a million digits must not be written out.
    if not (time.is_finite() and -LATEST_TIME <= time <= LATEST_TIME):
        return NO_TIME
    return int((time * 1000).quantize(_WHOLE_NANOSECOND))
