"""The log of phase changes, by the processor's clock or by events on a device's stream.

A mark names the phase of the time since the last mark. It costs the step as little as possible: one C call that appends
two entries to a flat list, without a Python frame of ours (the step's data has just evicted our code from the caches)
and without an object that the garbage collector counts. :meth:`drain` sums up, between blocks.
"""

from __future__ import annotations

import time
from typing import Any

from hotlap.records import STEP_PHASES, Phase

DATA_WAIT, HOST_TO_DEVICE, FORWARD = map(STEP_PHASES.index, ("data_wait", "host_to_device", "forward"))
BACKWARD, OPTIMIZER, OTHER = map(STEP_PHASES.index, ("backward", "optimizer", "other"))
"""The phase of the time before a mark, as an index into the table of phases."""

OUTSIDE = len(STEP_PHASES)
EVALUATION, CHECKPOINT = OUTSIDE + 1, OUTSIDE + 2
"""From ``OUTSIDE`` on the time is not part of a step; these two are its known kinds."""

PHASE_NAMES: tuple[Phase, ...] = (*STEP_PHASES, "outside", "outside", "outside")
MARKS = len(PHASE_NAMES)
FOLD_INTO_OUTSIDE, OTHER_WAS_FORWARD, STEP_BEGINS, STEP_ENDS = -1, -2, -3, -4
FOLD_INTO_EVALUATION, PERHAPS_EVALUATION, WAS_EVALUATION, OTHER_WAS_EVALUATION = -5, -6, -7, -8
"""``WAS_EVALUATION`` moves the step's time until the last ``PERHAPS_EVALUATION`` out of the step."""

CLOSED = (STEP_ENDS, None)


class Stopwatch:
    """The log: phase, reading, phase, reading ... A mark is ``write((phase, read()))``.

    The list remains the same object, so that callers may keep references to both functions.
    """

    def __init__(self) -> None:
        self._log: list[Any] = []
        self.write = self._log.extend
        self.restart()

    def read(self) -> Any:
        """A reading of the clock, to be resolved later."""
        raise NotImplementedError

    def restart(self) -> None:
        """Begin a step."""
        self.write((STEP_BEGINS, self.read()))

    def fold(self, marker: int) -> None:
        """Reassign the time of the running step so far."""
        self.write((marker, None))

    def step_closed(self) -> None:
        """``CLOSED`` was written: the step is complete as of the last mark, and the next one begins there."""

    def drain_ready(self) -> list[list[float]]:
        """Drain the steps whose last mark a device has passed by now, without waiting for the others."""
        log = self._log
        last: Any = None
        closed = 0
        for index in range(0, len(log), 2):
            if log[index + 1] is not None:
                last = log[index + 1]
            elif log[index] == STEP_ENDS:
                if not self._is_past(last):
                    break
                closed = index + 2
        return self.drain(closed) if closed else []

    def _is_past(self, reading: Any) -> bool:
        """Whether the moment of a reading has come."""
        return True

    def drain(self, until: int | None = None) -> list[list[float]]:
        """Seconds by phase of every step that was closed since the last drain, up to that entry of the log."""
        rows: list[list[float]] = []
        totals = [0.0] * MARKS
        perhaps = [0.0] * MARKS
        last: Any = None
        closed, begin = 0, last
        for index, (phase, reading) in enumerate(zip(self._log[:until:2], self._log[1:until:2], strict=True)):
            if phase >= 0:
                totals[phase] += self._seconds_between(last, reading)
                last = reading
            elif phase == STEP_BEGINS:
                totals = [0.0] * MARKS
                last = reading
            elif phase == STEP_ENDS:
                rows.append(totals)
                totals, perhaps = [0.0] * MARKS, [0.0] * MARKS
                closed, begin = index + 1, last
            elif phase == PERHAPS_EVALUATION:
                perhaps = list(totals)
            else:
                _fold(totals, phase, perhaps)
        if rows:
            self._release([it for it in self._log[1 : 2 * closed : 2] if it is not begin])
            self._log[: 2 * closed] = [STEP_BEGINS, begin]
        return rows

    def _seconds_between(self, first: Any, second: Any) -> float:
        raise NotImplementedError

    def _release(self, readings: list[Any]) -> None:
        """Release these readings, which are resolved."""


class HostStopwatch(Stopwatch):
    """Reads the processor's clock."""

    read = staticmethod(time.perf_counter)

    def _seconds_between(self, first: float, second: float) -> float:
        return second - first


class StreamStopwatch(Stopwatch):
    """Records an event at each mark; resolved in :meth:`drain`, after the caller has synchronised. Events are
    reused, so a long run creates only as many as one block needs.

    All marks of a step go to one stream, the one that was current on the device when the step began: what a script
    does on other streams in between (copying ahead, say) counts as far as this one waits for it, and no mark comes out
    before an earlier one. ``devices`` are the numbers of those that work, the first being the one that is timed; each
    is waited for in :meth:`synchronise`, since the current device need not be any of them.
    """

    def __init__(self, device_module: Any, devices: tuple[int, ...]) -> None:
        self._device = device_module
        self._devices = devices
        self._spare: list[Any] = []
        super().__init__()

    def read(self) -> Any:
        event = self._spare.pop() if self._spare else self._device.Event(enable_timing=True)
        event.record(self._stream)
        return event

    def restart(self) -> None:
        self._stream = self._device.current_stream(self._devices[0])
        super().restart()

    def step_closed(self) -> None:
        if self._device.current_stream(self._devices[0]) != self._stream:
            self.restart()

    def synchronise(self) -> None:
        """Wait until the devices have completed all work."""
        for index in self._devices:
            self._device.synchronize(index)

    def _is_past(self, reading: Any) -> bool:
        return bool(reading.query())

    def _seconds_between(self, first: Any, second: Any) -> float:
        milliseconds: float = first.elapsed_time(second)
        return milliseconds / 1e3

    def _release(self, readings: list[Any]) -> None:
        self._spare.extend(it for it in readings if it is not None)


def _fold(totals: list[float], marker: int, perhaps: list[float]) -> None:
    if marker == OTHER_WAS_FORWARD:
        totals[FORWARD] += totals[OTHER]
        totals[OTHER] = 0.0
    elif marker == OTHER_WAS_EVALUATION:
        totals[EVALUATION] += totals[OTHER]
        totals[OTHER] = 0.0
    else:
        folded = perhaps if marker == WAS_EVALUATION else list(totals)
        totals[OUTSIDE if marker == FOLD_INTO_OUTSIDE else EVALUATION] += sum(folded[:OUTSIDE])
        for phase in range(OUTSIDE):
            totals[phase] -= folded[phase]
