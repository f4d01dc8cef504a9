"""The pauses of Python's garbage collector, timed."""

from __future__ import annotations

import gc
import time
from typing import Any


class GarbageTimer:
    """Times every collection while ``counting``, the script's own ``gc.collect()`` among them.

    The interpreter calls back before and after each collection, in the thread that it interrupts; no other Python code
    of the process runs in between.
    """

    def __init__(self) -> None:
        self.counting = False
        self.collections = 0
        self.full_collections = 0
        self.seconds = 0.0
        self.longest_seconds = 0.0
        self._began = 0.0
        gc.callbacks.append(self._called)

    def remove(self) -> None:
        """Leave the interpreter's list of callbacks as it was."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def _called(self, when: str, of: dict[str, Any]) -> None:
        if when == "start":
            self._began = time.perf_counter() if self.counting else 0.0
        elif self._began:
            took = time.perf_counter() - self._began
            self._began = 0.0
            self.collections += 1
            self.full_collections += of["generation"] == 2
            self.seconds += took
            self.longest_seconds = max(self.longest_seconds, took)
