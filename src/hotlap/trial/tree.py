"""The processes of one child: finding, freezing and ending them all.

A training script has loader workers, spawned trainers, compile workers. They are found in three ways, since each misses
some: as descendants of the process that we started, as members of its session (orphans stay in it), and by a mark in
their environment (what left the session and lost its parent still carries it).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import psutil

from hotlap.sandbox import order

MARK_VARIABLE = "HOTLAP_MARK"
"""Environment variable that all processes of a child carry, with a value that no other child has."""

LAUNCHER = Path(order.__file__).with_name("launcher.py")
"""What starts a child in isolation, as ``python -I -S LAUNCHER ...``."""

Waits: TypeAlias = dict[int, float]

_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied)
_POLL_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Root:
    """The process that was started, leader of its own session; ``created`` (by psutil) protects against a process
    number that was reused meanwhile. ``pid`` is None before it is known. ``launcher``: it is
    :mod:`hotlap.sandbox.launcher`, whose process group is ours and no part of what is timed and frozen: it must be able
    to end the others at any moment."""

    mark: str
    pid: int | None = None
    created: float = 0.0
    launcher: bool = False

    @classmethod
    def of(cls, pid: int, mark: str, *, launcher: bool = False) -> Root:
        """The root of a process that was just started and cannot have been reaped yet."""
        return cls(mark=mark, pid=pid, created=psutil.Process(pid).create_time(), launcher=launcher)


def members(root: Root) -> list[psutil.Process]:
    """The living processes of the script, the first one first."""
    every = _living((*_descendants(root), *_in_session(root)))
    return [it for it in every if not _in_group(it, root.pid)] if root.launcher else every


def _all_members(root: Root) -> list[psutil.Process]:
    """The launcher too, and what left the session and lost its parent: every environment is read, which costs some
    milliseconds."""
    return _living((*_descendants(root), *_in_session(root), *_marked(root.mark)))


def _living(processes: Iterable[psutil.Process]) -> list[psutil.Process]:
    found: dict[int, psutil.Process] = {}
    for process in processes:
        if process.pid != os.getpid() and _alive(process):
            found.setdefault(process.pid, process)
    return list(found.values())


def _in_group(process: psutil.Process, group: int | None) -> bool:
    try:
        return os.getpgid(process.pid) == group
    except OSError:
        return False


def stop(root: Root) -> list[psutil.Process]:
    """Freeze every process of the child, and return them. Lists them again until no new ones appear, as one may fork
    before it is stopped."""
    stopped: dict[int, psutil.Process] = {}
    while fresh := [process for process in members(root) if process.pid not in stopped]:
        _signal_groups(fresh, signal.SIGSTOP)
        stopped |= {process.pid: process for process in fresh}
    return list(stopped.values())


def resume(stopped: Sequence[psutil.Process]) -> None:
    """Thaw frozen processes, the workers before the root that may wait for them."""
    _signal_groups(reversed(stopped), signal.SIGCONT)


def kill(root: Root, *, patience_seconds: float = 5.0) -> None:
    """End every process of the child, frozen ones too, and wait until they are gone (zombies count as gone).

    The launcher goes last, and by its end so does what it started in its own name: until then no process of the child
    can get out of sight, and whatever interrupts this, the launcher ends the rest. Gives up after
    ``patience_seconds``: a process that hangs in the kernel cannot be ended.
    """
    deadline = time.monotonic() + patience_seconds
    while alive := _all_members(root):
        script = [it for it in alive if not _launches(it)]
        _kill(script or alive[:1])
        while any(_alive(it) for it in script or alive):
            if time.monotonic() > deadline:
                _kill(alive)
                return
            time.sleep(_POLL_SECONDS)


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(*_GONE):
            process.kill()


def _launches(process: psutil.Process) -> bool:
    """Whether it is the launcher, or a copy of it that waits for the child's end."""
    try:
        return process.cmdline()[3:4] == [str(LAUNCHER)]
    except _GONE:
        return False


def cpu_seconds(processes: Iterable[psutil.Process]) -> float:
    """Processor time that these processes, and children of theirs that have ended, have used so far."""
    total = 0.0
    for process in processes:
        with suppress(*_GONE):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def waited_seconds(processes: Iterable[psutil.Process]) -> Waits | None:
    """How long each thread of these processes was ready to run so far and waited for a core, by its number; None where
    the system does not say (``/proc/PID/task/TID/schedstat``, the second number, in nanoseconds)."""
    found: dict[int, float] = {}
    for process in processes:
        with suppress(OSError):
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                with suppress(OSError):
                    found[int(thread.name)] = int((thread / "schedstat").read_text("ascii").split()[1]) / 1e9
    return found or None


def involuntary_switches(processes: Iterable[psutil.Process]) -> int:
    """How often the main threads of these processes were preempted."""
    total = 0
    for process in processes:
        with suppress(*_GONE):
            total += process.num_ctx_switches().involuntary
    return total


def memory_bytes(processes: Iterable[psutil.Process]) -> int:
    """Main memory held by these processes together. Where the system tells (Linux), a page that several of them share
    counts once (proportional set size); elsewhere it counts in each (resident set size)."""
    total = 0
    for process in processes:
        with suppress(*_GONE):
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
    return total


def _descendants(root: Root) -> Iterator[psutil.Process]:
    if root.pid is None:
        return
    with suppress(*_GONE):
        process = psutil.Process(root.pid)
        if process.create_time() == root.created:
            yield process
            yield from process.children(recursive=True)


def _in_session(root: Root) -> Iterator[psutil.Process]:
    """The members of the root's session. Its number stays taken while it has members, so it can only be somebody
    else's when the root's process number is."""
    if root.pid is None or _taken_by_somebody_else(root):
        return
    for pid in psutil.pids():
        with suppress(OSError, *_GONE):
            if os.getsid(pid) == root.pid:
                yield psutil.Process(pid)


def _taken_by_somebody_else(root: Root) -> bool:
    try:
        return psutil.Process(root.pid).create_time() != root.created
    except _GONE:
        return False


def _marked(mark: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(OSError, *_GONE):
            if process.environ().get(MARK_VARIABLE) == mark:
                yield process


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except _GONE:
        return False


def _signal_groups(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    """Signal the process groups of these processes: a whole group at once leaves no time to fork in between."""
    own = os.getpgrp()
    groups: dict[int, None] = {}
    for process in processes:
        with suppress(OSError):
            groups[os.getpgid(process.pid)] = None
    for group in groups:
        if group != own:
            with suppress(OSError):
                os.killpg(group, number)
