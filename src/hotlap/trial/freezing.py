"""Freezing an arm while another one has its turn, so that it neither prefetches nor uses the processor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import psutil

from hotlap.trial import tree
from hotlap.trial.suspension import Suspender


class Freezer(Protocol):
    """Freezes and thaws the process tree of one child. ``processes`` are those that were stopped last."""

    processes: Sequence[psutil.Process]

    def freeze(self, root: tree.Root) -> float:
        """Freeze the tree; return since when it is frozen, by :func:`time.perf_counter`.

        Raises :class:`hotlap.trial.suspension.SuspensionFailedError`, with the tree stopped all the same.
        """

    def thaw(self, *, over: bool) -> None:
        """Thaw the tree; where it is ``over``, only so that it can end.

        Raises :class:`hotlap.trial.suspension.SuspensionFailedError`.
        """


class TreeFreezer:
    """Stops processes by signal; their memory stays where it is."""

    def __init__(self) -> None:
        self.processes: Sequence[psutil.Process] = ()

    def freeze(self, root: tree.Root) -> float:
        self.processes = tree.stop(root)
        return time.perf_counter()

    def thaw(self, *, over: bool) -> None:
        tree.resume(self.processes)


class DeviceFreezer(TreeFreezer):
    """Moves the tree's device memory to the host before it is stopped, for arms that do not fit on a device together.

    The time of the moves counts as frozen time.
    """

    def __init__(self, suspender: Suspender) -> None:
        super().__init__()
        self._suspender = suspender
        self._suspended: tuple[int, ...] = ()

    def freeze(self, root: tree.Root) -> float:
        began = time.perf_counter()
        try:
            self._suspended = self._suspender.suspend(it.pid for it in tree.members(root))
        finally:
            stopped = super().freeze(root)
        return began if self._suspended else stopped

    def thaw(self, *, over: bool) -> None:
        super().thaw(over=over)
        suspended, self._suspended = self._suspended, ()
        if not over:
            self._suspender.restore(suspended)
