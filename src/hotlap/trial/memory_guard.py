"""Ending a child before it uses up this machine's memory: nothing is swapped, and the kernel's killer never runs."""

from __future__ import annotations

import threading
from contextlib import suppress

import psutil

from hotlap.machine.free_memory import available_share
from hotlap.trial import tree

_PERIOD_SECONDS = 0.01
"""Processes allocate a few gigabytes per second, so that only a small part of memory is used between two checks."""


class MemoryGuard:
    """Watches what is available from :meth:`start` until :meth:`stop`, and kills the child's processes once that is
    less than ``headroom``, a share; ``reason`` then says so."""

    def __init__(self, headroom: float) -> None:
        self.reason = ""
        self._headroom = headroom
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, root: tree.Root) -> None:
        """Begin to watch the processes of a child that was just started."""
        self._thread = threading.Thread(target=self._watch, args=(root,), name="hotlap memory guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; may be called again."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _watch(self, root: tree.Root) -> None:
        while not self._stopped.wait(_PERIOD_SECONDS):
            left = available_share()
            if left >= self._headroom:
                continue
            self.reason = (
                f"hotlap ended it: {100 * left:.0f} % of this machine's memory was left, "
                f"{100 * self._headroom:.0f} % must stay free."
            )
            while not self._stopped.wait(_PERIOD_SECONDS):
                members = tree.members(root)
                for process in members:
                    with suppress(psutil.NoSuchProcess):
                        process.kill()
                if not members:
                    return
            return
