"""Device memory that moves to the host while an arm waits for its turn.

An arm that fills most of a device cannot be alive next to another one, unless its memory leaves the device while it is
frozen. NVIDIA's driver can do that: ``cuda-checkpoint``, a program of NVIDIA's, has a process finish what it has
submitted, copies its device memory to the host, and gives the device back; and the other way round. Locking with a time
limit came with version 570 of the driver, and memory that processes share stays where it is, so that only one process a
child can be suspended (`cuda-checkpoint <https://github.com/NVIDIA/cuda-checkpoint>`_).

The program wants the process to run while it is suspended and restored; so it is frozen after the one and woken up
before the other.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

from hotlap.records import Accelerator

_PROGRAM = "cuda-checkpoint"
_OLDEST_DRIVER = 570
_LOCK_MILLISECONDS = 30_000
_LIMIT_SECONDS = 300.0
"""Copying all of the largest device's memory takes a fraction of this."""

_Action: TypeAlias = Literal["lock", "checkpoint", "restore", "unlock"]


class SuspensionFailedError(Exception):
    """A process could not be suspended or restored and cannot be used further: the driver does not guarantee its
    state."""


@dataclass(frozen=True, slots=True)
class Suspender:
    """Moves device memory by the program at that path."""

    program: str

    @classmethod
    def found(cls) -> Self | None:
        """The one on the search path, if there is one."""
        program = shutil.which(_PROGRAM)
        return cls(program) if program is not None else None

    def suspend(self, pids: Iterable[int]) -> tuple[int, ...]:
        """Move the device memory of those processes to the host that have any, and return them. Raises
        :class:`SuspensionFailedError`."""
        suspended = []
        for pid in pids:
            if self._uses_device(pid):
                self._act("lock", pid, "--timeout", str(_LOCK_MILLISECONDS))
                self._act("checkpoint", pid)
                suspended.append(pid)
        return tuple(suspended)

    def restore(self, pids: Iterable[int]) -> None:
        """The other way round, for processes that were suspended. Raises :class:`SuspensionFailedError`."""
        for pid in pids:
            self._act("restore", pid)
            self._act("unlock", pid)

    def _uses_device(self, pid: int) -> bool:
        """Whether a process has a context on a device: of others the program knows no state, and fails."""
        try:
            done = self._run("--get-state", "--pid", str(pid))
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0 and done.stdout.strip().lower() == "running"

    def _act(self, action: _Action, pid: int, *more: str) -> None:
        try:
            done = self._run("--action", action, "--pid", str(pid), *more)
        except subprocess.TimeoutExpired as error:
            raise SuspensionFailedError(f"{_PROGRAM} took more than {_LIMIT_SECONDS:.0f} s to {action} it") from error
        except OSError as error:
            raise SuspensionFailedError(f"{_PROGRAM} cannot be started: {error.strerror or error}") from error
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip().rpartition("\n")[2][:200]
            raise SuspensionFailedError(f"{_PROGRAM} could not {action} it: {said or f'exit code {done.returncode}'}")

    def _run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *words],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            errors="replace",
            timeout=_LIMIT_SECONDS,
        )


def can_suspend(accelerators: Iterable[Accelerator]) -> bool:
    """Whether the memory of all these devices can be moved to the host: the program is there, and the driver new
    enough. Whether it works, the first replicate shows."""
    devices = tuple(accelerators)
    new_enough = all(it.kind == "cuda" and _branch(it.driver) >= _OLDEST_DRIVER for it in devices)
    return bool(devices) and new_enough and Suspender.found() is not None


def _branch(driver: str) -> int:
    """The branch of a driver's version: 570 of ``570.86.10``; 0 where it is not known."""
    first = driver.partition(".")[0]
    return int(first) if first.isdecimal() else 0
