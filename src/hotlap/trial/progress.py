"""How many steps the processes of a run have done, also those that died or hang without a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from hotlap.records import STEP_COUNTER_BYTES, STEP_COUNTER_PREFIX

WHILE_STOPPED: Final = " while stopped by a signal"
"""What is added to the phase in which a run hung, where that was why."""

_MOST_COUNTERS = 4096
_LOOK_SECONDS = 1.0
_LOOKS_PER_LIMIT = 8


class StepCounters:
    """The counters that the processes of a run keep in its folder (:mod:`hotlap.runtime.step_counter`)."""

    def __init__(self, run_directory: Path) -> None:
        self._directory = run_directory

    def read(self) -> list[int]:
        """One number for each process that has trained; empty where none has, or where they cannot be read."""
        found = []
        try:
            paths = [it for it in self._directory.iterdir() if it.name.startswith(STEP_COUNTER_PREFIX)]
            for path in paths[:_MOST_COUNTERS]:
                with path.open("rb") as file:
                    found.append(int.from_bytes(file.read(STEP_COUNTER_BYTES), sys.byteorder))
        except OSError:
            return []
        return found

    def most(self) -> int:
        """How many steps the process has done that has done most."""
        return max(self.read(), default=0)


def stopped(processes: Iterable[psutil.Process]) -> bool:
    """Whether a signal has stopped any of these processes."""
    for process in processes:
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_STOPPED:
                return True
    return False


class Stall:
    """Notices that no process of a run has completed a step for ``limit_seconds`` (None: no limit)."""

    def __init__(
        self, counters: StepCounters, limit_seconds: float | None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.limit_seconds = limit_seconds or 0.0
        self._counters = counters
        self._clock = clock
        self._seen: list[int] = []
        self._changed = self._looked = clock()

    def noticed(self) -> bool:
        """Whether the limit has passed. Checks at most once per second, so that timed processes are not disturbed;
        False where no step is known."""
        now = self._clock()
        if not self.limit_seconds or now - self._looked < min(_LOOK_SECONDS, self.limit_seconds / _LOOKS_PER_LIMIT):
            return False
        self._looked = now
        seen = self._counters.read()
        if seen != self._seen:
            self._seen, self._changed = seen, now
        return bool(seen) and now - self._changed > self.limit_seconds
