"""The power of a device during a block, from occasional readings of its counters.

A device updates its energy counter every few tens of milliseconds, and a block has only a few updates: the first may
include the energy of another arm. So power is the energy between the first and the last update, divided by the time
between them; both are noticed late by the same part of a reading interval on average.
"""

from __future__ import annotations

from statistics import fmean


class CountedEnergy:
    """Readings of an energy counter, in order of time."""

    def __init__(self) -> None:
        self._leaps: list[tuple[float, float]] = []
        self._last: tuple[float, float] | None = None

    @property
    def has_readings(self) -> bool:
        """Whether there is a counter at all."""
        return self._last is not None

    def read(self, seconds: float, joules: float | None) -> None:
        """Add a reading of the counter at that time; None where it did not answer."""
        if joules is None:
            return
        if self._last is None or joules != self._last[1]:
            self._leaps.append((seconds, joules))
        self._last = (seconds, joules)

    def watts(self) -> float | None:
        """The mean power; None where the counter never moved, or fell."""
        first, *leaps = self._leaps or [(0.0, 0.0)]
        if len(leaps) >= 2:
            return _power(leaps[0], leaps[-1])
        return _power(first, self._last) if leaps and self._last is not None else None


class SampledPower:
    """Samples of a device's power, for devices without an energy counter."""

    def __init__(self) -> None:
        self._watts: list[float] = []

    def read(self, watts: float | None) -> None:
        """Add one sample; None where there was no answer."""
        if watts is not None:
            self._watts.append(watts)

    def watts(self) -> float | None:
        """The mean power; None without any sample."""
        return fmean(self._watts) if self._watts else None


def _power(first: tuple[float, float], last: tuple[float, float]) -> float | None:
    seconds, joules = last[0] - first[0], last[1] - first[1]
    return joules / seconds if seconds > 0 and joules >= 0 else None
