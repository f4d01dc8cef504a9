"""The processes that descend from this one, whatever they did to detach themselves, and what is mounted for them."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

_PR_SET_CHILD_SUBREAPER = 36
_DEAD = frozenset("ZX")
_AFTER_NAME = {"state": 0, "parent": 1, "started": 19}

Identity: TypeAlias = tuple[int, int]
"""A process's number and the clock tick of its start: no other process ever has both."""


@dataclass(frozen=True, slots=True)
class Process:
    number: int
    parent: int
    started: int
    state: str
    command: str

    @property
    def identity(self) -> Identity:
        return self.number, self.started


@contextmanager
def parent_of_orphans() -> Iterator[None]:
    """All that starts meanwhile descends from this process for as long as it lives: orphans become its children."""
    _adopt(True)
    try:
        yield
    finally:
        _adopt(False)


def _adopt(wanted: bool) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(wanted), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def descendants(of: int) -> list[Process]:
    """The living descendants of a process, parents before their children."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 (a hundred times in a storm, and quickly)
        if entry.isdecimal() and (found := _read(int(entry))) is not None:
            children.setdefault(found.parent, []).append(found)
    ordered: list[Process] = []
    pending = [of]
    while pending:
        for it in children.get(pending.pop(), []):
            pending.append(it.number)
            if it.state in _DEAD:
                _bury(it)
            else:
                ordered.append(it)
    return ordered


def _read(number: int) -> Process | None:
    try:
        with open(f"/proc/{number}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        with open(f"/proc/{number}/cmdline", "rb") as file:  # noqa: PTH123
            command = file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except (OSError, IndexError):
        return None
    state, parent, started = (fields[_AFTER_NAME[it]].decode() for it in ("state", "parent", "started"))
    return Process(number, int(parent), int(started), state, command)


def _bury(dead: Process) -> None:
    """Reap an orphan; the parent of a process reaps it."""
    if dead.parent == os.getpid() and not _kept(dead.number):
        with suppress(ChildProcessError):
            os.waitpid(dead.number, os.WNOHANG)


_own: set[int] = set()


def keep(number: int) -> None:
    """Leave the reaping of this child to the caller."""
    _own.add(number)


def _kept(number: int) -> bool:
    return number in _own


def kill(numbers: Iterable[int]) -> None:
    """``kill -9``, one right after the other."""
    for number in numbers:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def mounted_below(place: Path) -> list[str]:
    """The mounts here that are at a place below that folder or come from there. Those of a view of its own are gone
    with the last of its processes."""
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    return [os.fsdecode(it) for it in lines if os.fsencode(place) in it]
