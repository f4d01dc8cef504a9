"""Processes of a trial that hotlap did not get into: torch is loaded there, and nothing protects or measures it.

A launcher that starts a trainer with an environment of its own loses hotlap's hooks, and so does ``python -I``. Each
process that hotlap did get into leaves a mark (:mod:`hotlap.runtime.presence`); the others show what they have loaded
in ``/proc``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hotlap.files import read_bounded

_MAPS_LIMIT_BYTES = 8 * 2**20
_MARK_LIMIT_BYTES = 4096
_COMMAND_LIMIT = 200
_MOST_NAMED = 3
_SECOND_LOOK_SECONDS = 0.05
# What `import torch` loads. Programs that have torch's other libraries alone, as torch_shm_manager, train nothing.
_TORCH = b"/libtorch_python.so"
_MOST_GENERATIONS = 16
_FAILED = "failed "
_ANNOUNCED = ("torch", "importing", _FAILED)


@dataclass(frozen=True, slots=True)
class ForeignProcess:
    """A process that has torch loaded without hotlap. ``command`` is its command line, one line of bounded length.
    ``booted`` says that hotlap started in it, but never saw torch's import."""

    pid: int
    command: str
    booted: bool


def torch_without_hotlap(processes: Sequence[psutil.Process], run_directory: Path) -> list[ForeignProcess]:
    """Those of the ``processes`` of a run that have torch loaded, but not by way of hotlap.

    Reads one small file for a process that left its mark. A copy of one that hotlap is in is none either: between
    ``fork`` and ``exec`` any process has its parent's libraries and no mark of its own. What still looks like a
    stranger is looked at again a moment later.
    """
    suspects = [it for it in processes if _lacks_hotlap(it, run_directory)]
    if suspects:
        time.sleep(_SECOND_LOOK_SECONDS)
    return [
        ForeignProcess(pid=it.pid, command=_command(it), booted=bool(_mark(it.pid, run_directory)))
        for it in suspects
        if it.is_running() and _lacks_hotlap(it, run_directory)
    ]


def described(foreign: Sequence[ForeignProcess]) -> str:
    """Why a run with such processes must end, as the rest of a sentence."""
    named = ", ".join(f"`{it.command}`" for it in foreign[:_MOST_NAMED])
    return (
        f"torch runs in it without hotlap, neither measured nor protected: {named}; let the launcher pass its "
        "environment on, and start Python without -I, -S and -E"
    )


def boot_failures(run_directory: Path) -> tuple[str, ...]:
    """What the processes of a run that hotlap could not start in said about it, each sentence once."""
    found: dict[str, None] = {}
    with suppress(FileNotFoundError):
        for path in sorted((run_directory / "processes").iterdir()):
            text = _read_mark(path)
            if text.startswith(_FAILED):
                found[text.removeprefix(_FAILED)] = None
    return tuple(found)


def _lacks_hotlap(process: psutil.Process, run_directory: Path) -> bool:
    if _announced(process.pid, run_directory):
        return False
    mapping = _torch_mapping(process.pid)
    return bool(mapping) and not _is_copy(process, mapping, run_directory)


def _announced(pid: int, run_directory: Path) -> bool:
    return _mark(pid, run_directory).startswith(_ANNOUNCED)


def _is_copy(process: psutil.Process, mapping: bytes, run_directory: Path) -> bool:
    """Whether it was forked, by any number of generations, from a process that hotlap is in, and still runs the
    same program: after ``exec`` the library is at another address."""
    with suppress(psutil.Error):
        for ancestor in process.parents()[:_MOST_GENERATIONS]:
            if _torch_mapping(ancestor.pid) != mapping:
                return False
            if _announced(ancestor.pid, run_directory):
                return True
    return False


def _mark(pid: int, run_directory: Path) -> str:
    number = _own_number(pid)
    return _read_mark(run_directory / "processes" / str(number)) if number is not None else ""


def _own_number(pid: int) -> int | None:
    """The number that a process has for itself, in a pid namespace another than ours for it; None when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            return int(line.split()[-1])
    return pid  # a kernel without pid namespaces


def _read_mark(path: Path) -> str:
    """The mark's text, empty where there is none. One that is being made at this moment reads as ``booted``."""
    try:
        content = read_bounded(path, _MARK_LIMIT_BYTES, follow=False)
    except OSError:
        return ""
    return content.decode("utf-8", "replace").rstrip() or "booted"


def _torch_mapping(pid: int) -> bytes:
    """Where torch's library for Python is mapped into the process, as /proc shows it; empty where it is not, or where
    that cannot be read."""
    left = _MAPS_LIMIT_BYTES
    try:
        with Path(f"/proc/{pid}/maps").open("rb") as maps:
            for line in maps:
                left -= len(line)
                if left < 0:
                    break
                if _TORCH in line:
                    return line.split(b" ", 1)[0]
    except OSError:  # it is gone, or belongs to another user
        return b""
    return b""


def _command(process: psutil.Process) -> str:
    try:
        words = process.cmdline() or [process.name()]
    except psutil.Error:
        return f"process {process.pid}"
    line = "".join(it if it.isprintable() else " " for it in " ".join(" ".join(words).split()))
    return line if len(line) <= _COMMAND_LIMIT else f"{line[: _COMMAND_LIMIT - 3]}..."
