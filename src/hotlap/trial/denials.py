"""Whether a script failed because a trial's isolation denied it a write, judged by the end of its output.

The kernel answers with one of four errors. ``fence``: EACCES, landlock(7); and ENOENT where another program or a native
library looks for what Python code wrote, which only Python code sees. ``namespaces``: EOVERFLOW for what belongs to a
user or group that the run's user namespace does not have, user_namespaces(7); EROFS where no layer is possible; EXDEV
for renaming a folder that was there before (Linux, "Overlay Filesystem", section on renaming directories).

Tests hold the messages as libraries and programs wrote them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, TypeAlias

from hotlap.files import open_regular
from hotlap.records import ProtectionMode
from hotlap.trial.output import TRACEBACK, plain_lines, raised_error

UNNAMED = "a file that the error does not name"
"""The path's placeholder where an error says that a write was denied, but not which."""

Denial: TypeAlias = Literal["denied", "unseen", "foreign", "read-only", "rename"]

_ERRORS: tuple[tuple[Denial, ProtectionMode, str], ...] = (
    ("denied", "fence", r"[Pp]ermission denied"),
    ("unseen", "fence", r"No such file or directory"),
    ("foreign", "namespaces", r"Value too large for defined data type"),
    ("read-only", "namespaces", r"Read-only file system"),
    ("rename", "namespaces", r"Invalid cross-device link"),
)
# Messages without the kernel's words; those of sqlite and of torch before 2.9 do not say the cause.
_PARENT_MISSING = re.compile(r"Parent directory (?P<path>.+) does not exist")
_CANNOT_BE_OPENED = re.compile(r"(?:File (?P<path>\S.*?) cannot be opened|[Cc]annot open file (?P<path_2>[^\s'\":]+)$)")
_NAMELESS: tuple[tuple[ProtectionMode, re.Pattern[str]], ...] = (
    ("fence", re.compile(r"open file failed with strerror: Permission denied")),
    ("fence", re.compile(r"\w+: Permission denied \(os error 13\)$")),
    ("fence", re.compile(r"DistStoreError: Permission denied$")),
    ("fence", re.compile(r"zip I/O error: Permission denied")),
    ("fence", re.compile(r"OperationalError: unable to open database file")),
    ("fence", re.compile(r"OperationalError: attempt to write a readonly database")),
    ("namespaces", re.compile(r"open file failed with strerror: (?:Value too large|Read-only file system)")),
    ("namespaces", re.compile(r"\w+: (?:Value too large|Read-only file system).* \(os error \d+\)$")),
)
_UNSEEN_AND_NAMELESS = re.compile(r"\w+: No such file or directory \(os error 2\)$")

_QUOTED = re.compile(r"'([^']+)'|\"([^\"]+)\"|\u2018([^\u2019]+)\u2019|\u201c([^\u201d]+)\u201d|<([^<>]+)>")
_BEHIND = re.compile(r"\s*(?:\(os error \d+\))?(?:: | at path )(?P<rest>.+)$")
_COMPLAINT = re.compile(r": (?:[Cc]annot (?:open|stat|mkdir|unlink)|[Ff]unction not implemented)$")
_LEAD = re.compile(r"^.*\b(?:cannot create|output file|temporary file(?: in)?|cannot open|directory|file) (?=\S)")
_CLASS = re.compile(r"(?:^|\s)[\w.]*(?:Error|Exception): $")
_CONNECTORS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'^\s+File ".*\.pyx?", line \d+')
_FEW_LINES, _MANY_LINES, _LONGEST_PATH, _MOST_LOOKED_AT = 5, 60, 4096, 2000
_NEVER_DENIED = ("/dev", "/proc", "/sys")


def denied_path(output: str, mode: ProtectionMode, directory: str, overlay: str = "") -> str:
    """The path, as the script wrote it, that the isolation denied to a script that crashed; empty where it was not the
    isolation, :data:`UNNAMED` where it was and the error names no path.

    ``output`` is the end of what it wrote and ``directory`` where it ran. A path that this user could not write to
    anyway was not denied by the isolation. ``overlay`` is the folder of what Python code wrote (``fence``), if it still
    exists: with it, "No such file or directory" is understood too. Raises nothing.
    """
    if mode == "none":
        return ""
    for line in reversed(_last_words(output)):
        found = _denied_in(line, mode, directory, overlay)
        if found:
            return found
    return ""


def denial_of(text: str) -> Denial:
    """How a write was denied, by a text in which :func:`denied_path` found one."""
    found = [(it.end(), kind) for kind, _, words in _ERRORS for it in re.finditer(words, text)]
    return max(found)[1] if found else "denied"


def _last_words(output: str) -> list[str]:
    """The lines that say why the script ended, without those of its source."""
    lines = plain_lines(output.rstrip())
    if any(TRACEBACK in it for it in lines):
        chain = lines[_chain_start(lines) :]
        # Where it only says that a program of the script failed, that program's own message comes before it.
        lines = chain if raised_error("\n".join(chain), second_hand=False) else lines[-_MANY_LINES:]
    else:
        lines = [it for it in lines if it.strip()][-_FEW_LINES:]
    return [it for number, it in enumerate(lines) if number == 0 or not _FRAME.match(lines[number - 1])]


def _chain_start(lines: Sequence[str]) -> int:
    """Where the last traceback begins, with those that led to it."""
    starts = [number for number, it in enumerate(lines) if TRACEBACK in it]
    while len(starts) > 1 and any(it in line for line in lines[starts[-2] : starts[-1]] for it in _CONNECTORS):
        starts.pop()
    return starts[-1]


def _denied_in(line: str, mode: ProtectionMode, directory: str, overlay: str) -> str:
    if any(of_mode == mode and pattern.search(line) for of_mode, pattern in _NAMELESS):
        return UNNAMED if _may_write(Path(directory)) else ""
    if mode == "fence" and _UNSEEN_AND_NAMELESS.search(line):
        return UNNAMED if any(_made_folders(overlay)) else ""
    for kind, of_mode, words in _ERRORS:
        found = re.search(words, line) if of_mode == mode else None
        path = _path_in(line, found) if found is not None else ""
        if path and _counts(kind, path, directory, overlay):
            return path
    return _named_otherwise(line, directory, overlay) if mode == "fence" else ""


def _path_in(line: str, error: re.Match[str]) -> str:
    """The path in a line with the kernel's words: quoted behind them or before, else what a colon sets off."""
    before, behind = line[: error.start()], line[error.end() :]
    rest = _BEHIND.match(behind)
    if rest is not None:
        quoted = _QUOTED.match(rest["rest"].lstrip("b"))
        path = _text_of(quoted) if quoted is not None else rest["rest"]
    elif quoted_before := list(_QUOTED.finditer(before)):
        path = _text_of(quoted_before[-1])
    elif before.endswith(": ") and not _CLASS.search(before):
        path = _LEAD.sub("", _COMPLAINT.sub("", before.removesuffix(": ")).rpartition(": ")[2])
    else:
        return ""
    path = path.strip()
    return path if 0 < len(path) <= _LONGEST_PATH and "\0" not in path else ""


def _named_otherwise(line: str, directory: str, overlay: str) -> str:
    missing = _PARENT_MISSING.search(line)
    if missing is not None:
        return missing["path"] if _only_in_overlay(_absolute(missing["path"], directory), overlay) else ""
    unopened = _CANNOT_BE_OPENED.search(line)
    if unopened is None:
        return ""
    path = unopened["path"] or unopened["path_2"]
    # Reading a missing file fails with the same message.
    known = os.path.lexists(_absolute(path, directory)) or re.search("writ|creat|output|sav", line) is not None
    return path if known and _counts("denied", path, directory, overlay) else ""


def _counts(kind: Denial, path: str, directory: str, overlay: str) -> bool:
    """Whether the isolation is the cause: without it this user could have written there."""
    place = _absolute(path, directory)
    if any(place.is_relative_to(it) for it in _NEVER_DENIED):
        return False
    if kind == "unseen":
        return _only_in_overlay(place, overlay)
    if kind == "rename":
        return _mode_of(place, stat.S_IFDIR) != 0 and _may_write(place.parent)
    return _may_write(place) and not _is_program(place)


def _absolute(path: str, directory: str) -> Path:
    return Path(os.path.normpath(Path(directory) / path))


def _may_write(place: Path) -> bool:
    """Whether this user may change what is there, or make it."""
    if os.path.lexists(place) and os.access(place, os.W_OK):
        return True
    parent = next(it for it in place.parents if os.path.lexists(it))
    return _mode_of(parent, stat.S_IFDIR) != 0 and os.access(parent, os.W_OK | os.X_OK)


def _mode_of(place: Path, kind: int) -> int:
    """The mode of what is there; 0 where nothing is, or something of another kind."""
    try:
        mode = place.stat().st_mode
    except OSError:
        return 0
    return mode if stat.S_IFMT(mode) == kind else 0


def _is_program(place: Path) -> bool:
    """Whether it is a program: what was denied is to execute it, or what it should have written."""
    mode = _mode_of(place, stat.S_IFREG)
    try:
        with open_regular(place) as file:
            begin = file.read(4)
    except OSError:
        return False
    return begin == b"\x7fELF" or (begin[:2] == b"#!" and not mode & 0o111)


def _only_in_overlay(place: Path, overlay: str) -> bool:
    """Whether the script made a file, or the folder that it is in, which none but its Python code can see."""
    return overlay != "" and any(
        os.path.lexists(f"{overlay}{it}") and not os.path.lexists(it) for it in (place, place.parent)
    )


def _made_folders(overlay: str) -> Iterator[str]:
    """Folders that the script made, which none but its Python code can see."""
    if not overlay:
        return
    for number, (folder, _, _) in enumerate(os.walk(overlay)):
        if number > _MOST_LOOKED_AT:
            return
        if not os.path.lexists(folder[len(overlay) :] or "/"):
            yield folder


def _text_of(quoted: re.Match[str]) -> str:
    return next(it for it in quoted.groups() if it is not None)
