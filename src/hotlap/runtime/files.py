"""Redirecting writes: in a trial, the script's writes go to the study's folder, and it reads back what it wrote.

:func:`redirect_writes` puts stand-ins in the place of ``open`` and of the functions of :mod:`os`, wherever a module
holds them. Python's audit events (PEP 578) tell of files that were opened for writing around these; they are named in
the report as not redirected. Forked processes inherit all of this, spawned ones install it again on the same overlay.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import get_ident
from types import FunctionType, ModuleType
from typing import Any

import msgspec

from hotlap.records import FileWrite
from hotlap.runtime.native_writers import WATCHED, redirect_native_calls
from hotlap.runtime.originals import io, posix
from hotlap.runtime.overlay import WRITE_FLAGS, Overlay
from hotlap.runtime.places import Places, find_places, places_within
from hotlap.runtime.program_stand_ins import program_stand_ins
from hotlap.runtime.raw_files import raw_stand_ins
from hotlap.runtime.stand_ins import Open, stand_ins
from hotlap.sandbox.boundary import Boundary

__all__ = ["WATCHED", "Redirection", "redirect_writes"]

_MOST_NAMES = 1000
_LOWEST_MODULES = frozenset({"_frozen_importlib", "_frozen_importlib_external"})

_active: Redirection | None = None
_audited = False


def redirect_writes(
    overlay: Path,
    *,
    passthrough: Sequence[Path] = (),
    protected: Sequence[Path] = (),
    boundary: Boundary | None = None,
) -> Redirection:
    """Redirect the writes of this process to ``overlay``, except in the folders of ``passthrough``. Those in
    ``protected`` are protected wherever they are, as the working directory is. A ``boundary`` decides in place of
    ``passthrough`` and of this process's environment.

    Several processes may share an overlay. Raises ``OSError`` when the overlay cannot be made.
    """
    global _active
    overlay.mkdir(parents=True, exist_ok=True)
    folder = overlay.resolve()
    if boundary is None:
        places = find_places((*passthrough, folder), os.environ, protected)
    else:
        places = places_within(boundary, str(folder), protected)
    redirection = Redirection(str(folder), places)
    redirection.install()
    _active = redirection
    _add_audit_hook()
    return redirection


class Redirection:
    """The redirection of one process; ``files()`` tells what all processes on the same overlay wrote."""

    def __init__(self, folder: str, places: Places) -> None:
        self._places = places
        self._names = _Names(f"{folder}/names.jsonl")
        self._overlay = Overlay(folder, places.roots, self._note)
        self._stand_ins = stand_ins(self._overlay)
        self._open: Open = self._stand_ins[io.open]
        self._stand_ins |= raw_stand_ins(self._open) | program_stand_ins(self._overlay)
        self._by_identity = {id(original): stand_in for original, stand_in in self._stand_ins.items()}

    def install(self) -> None:
        """Put the stand-ins wherever an original is held: in ``os``, ``io`` and ``builtins``, and in all modules that
        took one from there, as a name, in a class (pathlib's globbing) or as a default value (tempfile)."""
        for name, module in list(sys.modules.items()):
            if isinstance(module, ModuleType) and name not in _LOWEST_MODULES:
                self._replace_in(module)
        for functions in (os.supports_dir_fd, os.supports_effective_ids, os.supports_fd, os.supports_follow_symlinks):
            for original, stand_in in self._stand_ins.items():
                if original in functions:
                    functions.add(stand_in)

    def _replace_in(self, owner: Any) -> None:
        # By type() and not isinstance(), which asks an object for its __class__: deprecated ones warn when asked.
        for name, value in list(vars(owner).items()):
            held = value.__func__ if issubclass(type(value), staticmethod) else value
            stand_in = self._by_identity.get(id(held))
            if stand_in is not None:
                setattr(owner, name, stand_in)
            elif issubclass(type(held), FunctionType):
                self._replace_defaults(held)
            elif issubclass(type(value), type) and isinstance(owner, ModuleType) and value.__module__ == owner.__name__:
                self._replace_in(value)

    def _replace_defaults(self, function: FunctionType) -> None:
        defaults = function.__defaults__ or ()
        replaced = tuple(self._by_identity.get(id(value), value) for value in defaults)
        if any(new is not old for new, old in zip(replaced, defaults, strict=True)):
            function.__defaults__ = replaced

    def on_import(self, name: str, module: ModuleType) -> None:
        """To be called once one of :data:`WATCHED` was imported."""
        redirect_native_calls(name, module, self._overlay)

    def files(self) -> tuple[FileWrite, ...]:
        """Every path that was opened for writing, in the order of first sight; at most a thousand of each kind.
        Caches are named by their folder, temporary files not at all."""
        return self._names.read()

    def _note(self, path: str, redirected: bool) -> None:
        name = path if redirected else self._places.name_for(path)
        if name is not None and "__pycache__" not in name:
            self._names.add(name, redirected)

    def saw_opening(self, path: Any) -> None:
        """An audit event: a file is being opened for writing, by a stand-in or around them."""
        if get_ident() in self._open.threads_inside or not isinstance(path, (str, bytes)):
            return
        text = os.fsdecode(path)
        if text.startswith(self._overlay.folder) or "__pycache__" in text:
            return
        with contextlib.suppress(OSError):
            protected = self._overlay.protected_path(text)
            if protected is not None:
                self._note(protected, False)


class _Names:
    """The names of files that were written to, on disk since several processes add to them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: set[tuple[str, bool]] = set()
        self._counts = {True: 0, False: 0}

    def add(self, path: str, redirected: bool) -> None:
        key = (path, redirected)
        if key in self._known or self._counts[redirected] >= _MOST_NAMES:
            return
        self._known.add(key)
        self._counts[redirected] += 1
        readable = path.encode("utf-8", "backslashreplace").decode()
        line = msgspec.json.encode(FileWrite(path=readable, redirected=redirected)) + b"\n"
        with contextlib.suppress(OSError):  # a full disk must fail the script's own write, not this one
            descriptor = posix.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                posix.write(descriptor, line)
            finally:
                posix.close(descriptor)

    def read(self) -> tuple[FileWrite, ...]:
        found: dict[FileWrite, None] = {}
        with contextlib.suppress(FileNotFoundError), io.open(self._path, "rb") as lines:
            for line in lines:
                with contextlib.suppress(msgspec.DecodeError):  # a line cut short by a full disk
                    found[msgspec.json.decode(line, type=FileWrite)] = None
        kinds = {kind: [it for it in found if it.redirected is kind][:_MOST_NAMES] for kind in (True, False)}
        kept = set(kinds[True]) | set(kinds[False])
        return tuple(it for it in found if it in kept)


def _add_audit_hook() -> None:
    """Add the audit hook, once in a process: hooks cannot be taken back."""
    global _audited
    if not _audited:
        _audited = True
        sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _active is not None and arguments[2] & WRITE_FLAGS:
        _active.saw_opening(arguments[0])
