"""Removing the files of runs that were killed together with every process that could have removed them.

Two places: the folders of a study's runs, which belong to whoever holds the study's lock, and folders in the temporary
directory, each of which names its owner by a lock on a file in it. The kernel gives such a lock back when the owner
ends, however it ends, and unlike a process number it means the same in every container that shares the directory.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from hotlap.errors import HotlapError
from hotlap.files import take_lock
from hotlap.sandbox.removal import OWNER, Removal
from hotlap.trial import tree

PREFIX: Final = "hotlap-"
"""How the names of all temporary folders begin."""

OF_RUNS: Final = ("files", "layers", "trackers")
"""The folders in a run's that hold what the script wrote; they are of no use once the run is over."""

BRIEF: Final = ".brief-"
"""How the folders begin of runs that only try something."""

_MOST_FOLDERS = 20_000
_SHORT_TEMPORARY = "/tmp"
_Wanted: TypeAlias = Callable[[str], bool]
_owned: dict[Path, int] = {}


def sweep_leftovers(runs: Path) -> int:
    """Remove what the script's writes of dead runs take, and return how many folders are gone.

    Call it while the study's lock is held and before its first launch: then every run below ``runs`` is dead. Links are
    not followed, other file systems not entered; what cannot be removed within half a minute stays.
    """
    removal = Removal()
    brief = sum(removal.remove(str(run)) for run in _folders(runs, lambda name: name.startswith(BRIEF)))
    return brief + sum(_sweep_run(run, removal) for run in _folders(runs, lambda name: name.isdecimal()))


def sweep_run(run: Path) -> int:
    """The same for one run, all of whose processes are gone."""
    return _sweep_run(run, Removal())


def _sweep_run(run: Path, removal: Removal) -> int:
    return sum(removal.remove(str(it)) for name in OF_RUNS if (it := run / name).is_dir() and not it.is_symlink())


def make_own(prefix: str, parent: str) -> Path:
    """A new temporary folder below ``parent`` that is marked as this process's.

    Raises :class:`HotlapError` when none can be made there.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent)).resolve()
    except OSError as error:
        raise HotlapError(
            f"Nothing can be written in the temporary directory {parent}: {error.strerror or error}.",
            remedy="Free some space there, or set TMPDIR to another directory.",
        ) from error
    own(folder)
    return folder


def own(folder: Path) -> None:
    """Mark a temporary folder as this process's, until :func:`disown` or the end of the process. Where files cannot be
    locked it gets no mark, and is never swept."""
    unlocked = folder / f"{OWNER}.new"
    with suppress(OSError):
        descriptor = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        _owned[folder] = descriptor
        take_lock(descriptor)
        unlocked.rename(
            folder / OWNER
        )  # locked before it has the name, so that no process can see it without its owner


def disown(folder: Path) -> None:
    """Give up a folder; one that was never owned is left alone."""
    descriptor = _owned.pop(folder, None)
    if descriptor is not None:
        os.close(descriptor)


def sweep_temporary_folders() -> int:
    """Remove the temporary folders of this user whose owner is gone, and end what processes it left; how many went.

    A folder without an owner's mark is not touched: it may be anybody's.
    """
    removal = Removal()
    return sum(
        _sweep_folder(folder, removal)
        for parent in dict.fromkeys((tempfile.gettempdir(), _SHORT_TEMPORARY))
        for folder in _folders(Path(parent), lambda name: name.startswith(PREFIX))
        if folder not in _owned
    )


def _sweep_folder(folder: Path, removal: Removal) -> bool:
    descriptor = _taken_over(folder)
    if descriptor is None:
        return False
    try:
        tree.kill(tree.Root(mark=str(folder)))
        return removal.remove(str(folder))
    finally:
        os.close(descriptor)


def _taken_over(folder: Path) -> int | None:
    """The lock on a folder's mark, where it is ours, has a mark, and no process holds it."""
    try:
        descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        ours = stat.S_ISREG(status.st_mode) and status.st_uid == folder.lstat().st_uid == os.geteuid()
        if ours and take_lock(descriptor):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _folders(parent: Path, wanted: _Wanted) -> list[Path]:
    """The folders in ``parent`` with such a name; no links."""
    found: list[Path] = []
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if wanted(entry.name) and entry.is_dir(follow_symlinks=False):
                found.append(Path(entry.path))
            if len(found) >= _MOST_FOLDERS:
                break
    return found
