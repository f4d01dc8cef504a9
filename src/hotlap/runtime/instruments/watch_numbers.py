"""Looks for the first number that is not finite, and ends the process there (:mod:`hotlap.runtime.not_finite`)."""

from __future__ import annotations

from hotlap.records import WatchNumbers
from hotlap.runtime.instruments.api import Place
from hotlap.runtime.not_finite.watch import NumbersWatch


def install(place: Place, asked: WatchNumbers) -> None:
    """The clock's end of a step comes after the watch's."""
    NumbersWatch(
        place.interception,
        place.clock,
        asked.check_from,
        lambda bad_number: place.finish(bad_number=bad_number),
    )
