"""Run two scripts in turns of a fraction of a second.

The speed of a machine changes from one minute to the next by more than many cures save. Both scripts run up to the end
of their warm-up; then one is always stopped while the other goes on, and what counts is the time for which it ran.
Two processes of the same script still differ, by where their memory lies: it takes several pairs to measure a cure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import psutil

ROUNDS: Final = 10
_FEWEST_STEPS: Final = 5
_PAUSE_SECONDS: Final = 0.05
_GRACE_SECONDS: Final = 45.0
"""torchrun gives its ranks 30 seconds to end."""

_ERRORS: Final = "errors.txt"


class Ended(Exception):
    """A script ended before its turns were over: with ``error`` or, if that is empty, normally."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


def started(command: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
    """A command in a process group of its own, with an empty cache for compiled code; :func:`last_words` has what it
    says of errors."""
    environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(directory / "compiled")}
    with (directory / _ERRORS).open("w", encoding="utf-8") as errors:
        return subprocess.Popen(
            command, cwd=directory, env=environment, stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True
        )


def ended(child: subprocess.Popen[bytes]) -> None:
    """End a command and its process group. torchrun's ranks are in sessions of their own: it ends them on SIGTERM."""
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def last_words(child: subprocess.Popen[bytes], directory: Path) -> str:
    """The last line of a command's output, if it failed."""
    said = (directory / _ERRORS).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return said[-1] if child.returncode and said else ""


class Side:
    """One script, which writes the times at which its steps ended to the file ``stamps``."""

    def __init__(self, command: Sequence[str], stamps: Path) -> None:
        self._stamps = stamps
        self._turns: list[tuple[float, float]] = []
        self._child = started(command, stamps.parent)

    def begin(self, warm_up_seconds: float, limit_seconds: float) -> None:
        """Wait until it has trained for that long. Raises :class:`Ended`."""
        until = time.monotonic() + limit_seconds
        while not (stamps := self.stamps()) or time.monotonic() - stamps[0] < warm_up_seconds:
            self.check()
            if time.monotonic() > until:
                raise Ended(f"it ran for more than {limit_seconds:.0f} s")
            time.sleep(_PAUSE_SECONDS)

    def check(self) -> None:
        """Raise :class:`Ended` if it has ended."""
        if self._child.poll() is not None:
            raise Ended(last_words(self._child, self._stamps.parent))

    def turn(self, seconds: float) -> None:
        """Let it run for that long."""
        self.signal(signal.SIGCONT)
        began = time.monotonic()
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        self._turns.append((began, time.monotonic()))
        self.check()

    def signal(self, number: int) -> None:
        """Send a signal to it and all processes that it started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            parent = psutil.Process(self._child.pid)
            for it in (parent, *parent.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    it.send_signal(number)

    def end(self) -> None:
        """End it and its remaining processes."""
        self.signal(signal.SIGCONT)
        ended(self._child)

    def stamps(self) -> list[float]:
        """The times at which steps ended."""
        data = self._stamps.read_bytes() if self._stamps.exists() else b""
        return [moment for (moment,) in struct.iter_unpack("d", data[: len(data) // 8 * 8])]

    def active_moments(self) -> list[float]:
        """The same, for those that ended in its turns, in seconds for which it ran."""
        return active_moments(self.stamps(), self._turns)


def active_moments(stamps: Sequence[float], turns: Sequence[tuple[float, float]]) -> list[float]:
    """Times within turns, as seconds of running."""
    found, before = [], 0.0
    for begin, end in turns:
        found += [before + it - begin for it in stamps if begin <= it <= end]
        before += end - begin
    return found


def seconds_per_step(sides: Sequence[Side], seconds: float, limit_seconds: float) -> list[float]:
    """Of each side, over all of its turns. Ends them all. Raises :class:`Ended`, also where steps were too few."""
    try:
        for it in sides:
            it.begin(0.2 * seconds, limit_seconds)
        for it in sides:
            it.signal(signal.SIGSTOP)
        for number in range(ROUNDS):
            for it in sides if number % 2 == 0 else reversed(sides):
                it.turn(seconds / ROUNDS)
    finally:
        for it in sides:
            it.end()
    moments = [it.active_moments() for it in sides]
    if min(map(len, moments)) < _FEWEST_STEPS:
        raise Ended("too few steps")
    return [(it[-1] - it[0]) / (len(it) - 1) for it in moments]
