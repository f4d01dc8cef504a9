"""Watching a run from inside: a row about every second, for whoever collects them."""

from __future__ import annotations

import atexit
import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hotlap.records import WATCH_ROW_BYTES, WATCH_ROWS, WATCH_SUFFIX, WatchRow
from hotlap.runtime.interception import Interception
from hotlap.runtime.process_groups import place_in_group
from hotlap.runtime.watch.clock import LongRunClock
from hotlap.runtime.watch.peek import Peek
from hotlap.runtime.watch.skipped import SkippedSteps

ROW_SECONDS = 1.0


class Watcher:
    """Hangs a clock onto the hooks and reports rows to ``sink``. It changes nothing in the script.

    What fails here ends the watching and not the script: rows just stop.
    """

    def __init__(self, interception: Interception, sink: Callable[[WatchRow], None]) -> None:
        torch = interception.hooks.torch
        self._torch = torch
        self._sink = sink
        self._process = os.getpid()
        self._ended = False
        self._number = 0
        self._steps_before = 0
        self._began = time.perf_counter()
        self._loss = Peek(torch)
        self._scale = Peek(torch)
        self._skipped = SkippedSteps(torch)
        self._clock = LongRunClock(
            interception.hooks, scaling=interception, on_step=self._step_ended, see_loss=self._loss.look
        )
        self._watch_scale(interception)
        atexit.register(self.end)
        os.register_at_fork(after_in_child=self._forked)

    def end(self) -> None:
        """Report what was not reported yet, and nothing from then on."""
        has_news = self._clock.all_steps > self._steps_before or self._skipped.has_news
        if not self._ended and has_news and os.getpid() == self._process:
            self._report()
        self._ended = True

    def resume(self) -> None:
        """Go on after a time in which the interception was suspended."""
        self._began = time.perf_counter()
        self._steps_before = self._clock.all_steps
        self._clock.wake(within_step=True)

    def _watch_scale(self, interception: Interception) -> None:
        scaler = self._torch.amp.GradScaler
        update: Callable[..., Any] = scaler.update

        @functools.wraps(update)
        def updating(it: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._ended:
                self._skipped.before_update(it)
            result = update(it, *args, **kwargs)
            # Private in torch 2.6 to 2.13; the public `get_scale` waits for the device.
            scale = getattr(it, "_scale", None)
            if scale is not None and self._scale.wanted and not self._ended:
                self._scale.look(scale)
            return result

        interception.patches.replace(scaler, "update", updating)

    def _step_ended(self) -> None:
        if not self._ended and time.perf_counter() - self._began >= ROW_SECONDS:
            self._report()

    def _report(self) -> None:
        try:
            self._sink(self._row())
        except (OSError, RuntimeError, ValueError):  # of the disk, or of a device that is failing anyway
            self._ended = True

    def _row(self) -> WatchRow:
        now = time.perf_counter()
        elapsed, self._began = now - self._began, now
        steps, self._steps_before = self._clock.all_steps - self._steps_before, self._clock.all_steps
        timed = self._clock.take()
        if timed.steps:
            self._clock.rest(timed.wall_seconds / timed.steps)
        rank, processes = place_in_group(self._torch)
        scaled_steps, skipped_steps = self._skipped.take()
        self._number += 1
        return WatchRow(
            number=self._number,
            process=self._process,
            rank=rank,
            processes=processes,
            at=time.monotonic(),
            elapsed_seconds=elapsed,
            steps=steps,
            timed_steps=timed.steps,
            wall_seconds=timed.wall_seconds,
            phases=tuple(timed.phases),
            samples=timed.samples,
            loss=self._loss.value(),
            loss_scale=self._scale.value(),
            scaled_steps=scaled_steps,
            skipped_steps=skipped_steps,
            device_bytes=_device_bytes(self._torch),
        )

    def _forked(self) -> None:
        """A forked child that trains reports for itself; one that loads data makes no steps."""
        self._process = os.getpid()
        self._number = 0
        self._began = time.perf_counter()
        self._steps_before = self._clock.all_steps
        self._skipped = SkippedSteps(self._torch)  # the parent reports its own


class RowFile:
    """The last rows of this process in a file of its own, each at a place of fixed length.

    The file is opened for each row: a script may close all descriptors, and get the same number for a file of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, row: WatchRow) -> None:
        """Write a row over the oldest. Raises :class:`OSError`."""
        line = msgspec.json.encode(row)
        if len(line) >= WATCH_ROW_BYTES:
            raise ValueError("a row is too long")
        path = self._folder / f"{row.process}{WATCH_SUFFIX}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            place = (row.number % WATCH_ROWS) * WATCH_ROW_BYTES
            os.pwrite(descriptor, line.ljust(WATCH_ROW_BYTES - 1) + b"\n", place)
        finally:
            os.close(descriptor)


def _device_bytes(torch: Any) -> int:
    cuda = torch.cuda
    if not cuda.is_initialized():
        return 0
    return max((int(cuda.memory_allocated(it)) for it in range(cuda.device_count())), default=0)
