"""Stand-ins for what starts a program: one that the script wrote, or in a folder that it made, is where the overlay
has it. The program itself sees the user's files, and not what the script changed."""

from __future__ import annotations

import _posixsubprocess
import os
from typing import Any

from hotlap.runtime.originals import posix
from hotlap.runtime.overlay import Overlay
from hotlap.runtime.stand_ins import StandIn

_EXECUTABLES, _FOLDER = 1, 4


def _kept_at(overlay: Overlay, path: Any, folder: str = "") -> Any:
    """The path at which the overlay has a file or folder that the script made; any other path as it is."""
    text = os.fsdecode(path)
    seen = text if not folder or text.startswith("/") else f"{folder}/{text}"
    try:
        place = overlay.locate(seen)
    except OSError:
        return path  # the system call fails, or finds it by PATH
    if not overlay.has_made(place):
        return path
    return os.fsencode(place) if isinstance(path, bytes) else place


class Execute(StandIn):
    """``execv``, ``execve`` and ``posix_spawn``, which take the path first."""

    def __call__(self, path: Any, *arguments: Any, **keywords: Any) -> Any:
        if not isinstance(path, int):
            path = _kept_at(self._overlay, path)
        return self._original(path, *arguments, **keywords)


class ForkExecute(StandIn):
    """What :mod:`subprocess` starts programs with: the candidates for the executable, and the folder to start in."""

    module = "_posixsubprocess"

    def __call__(self, *arguments: Any) -> Any:
        given = list(arguments)
        folder = given[_FOLDER]
        given[_EXECUTABLES] = tuple(
            _kept_at(self._overlay, it, os.fsdecode(folder or "")) if b"/" in os.fsencode(it) else it
            for it in given[_EXECUTABLES]
        )
        if folder is not None:
            given[_FOLDER] = _kept_at(self._overlay, folder)
        return self._original(*given)


def program_stand_ins(overlay: Overlay) -> dict[Any, Any]:
    """Each original function with its replacement."""
    found: dict[Any, Any] = {_posixsubprocess.fork_exec: ForkExecute(_posixsubprocess.fork_exec, overlay)}
    for original in (posix.execv, posix.execve, posix.posix_spawn):
        found[original] = Execute(original, overlay)
    return found
