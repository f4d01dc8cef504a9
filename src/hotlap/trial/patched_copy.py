"""A copy of the user's source in which some files are replaced, to be run in its place.

Python finds modules next to the real place of a script, so links would lead back to the original: folders that hold
Python files are made again with those files copied, everything else (data, outputs) is linked to. The original is only
read.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from hotlap.errors import HotlapError, UsageError
from hotlap.files import home_directory
from hotlap.records import Workload
from hotlap.trial.checkout import moved
from hotlap.trial.source import script_of

_NEVER_COPIED = frozenset(
    {".git", ".hotlap", "__pycache__", ".venv", "venv", "node_modules", "site-packages", "dist-packages"}
)
_MOST_FILES = 20_000
_MOST_BYTES = 512 * 2**20


def patched_copy(workload: Workload, files: Mapping[Path, bytes], folder: Path) -> Workload:
    """The workload in a copy below ``folder`` in which these files (absolute paths) hold the given bytes.

    Raises :class:`UsageError` where the files have no folder in common that could be copied, and :class:`HotlapError`
    when the copy cannot be made.
    """
    top = _top(workload, files)
    copy = folder / "patched"
    needed = {parent for path in files for parent in path.parents}
    try:
        _Copying(needed).folder(top, copy)
        for path, data in files.items():
            (copy / path.relative_to(top)).write_bytes(data)
    except OSError as error:
        raise HotlapError(
            f"The source cannot be copied: {error.strerror or error}.",
            where=str(error.filename or folder),
            remedy="Free some space in the temporary directory, or set TMPDIR to a larger one.",
        ) from error
    return moved(workload, top, copy, "")


def _top(workload: Workload, files: Mapping[Path, bytes]) -> Path:
    """The folder to copy: what the script (or, for a module, the working directory) and all files are in."""
    script = script_of(workload)
    imported_from = Path(workload.directory)
    if workload.kind == "script" and script is not None:
        imported_from = script.resolve().parent
    top = Path(os.path.commonpath([imported_from, *(path.parent for path in files)]))
    if top == Path(top.anchor) or top == home_directory():
        raise UsageError(
            f"The files that the patch changes have only {top} in common, which is too much to copy.",
            remedy="`--no-proof` shows the patch without running it.",
        )
    return top


class _Copying:
    """Copies within bounds. ``needed`` are folders that must be made again whatever they hold."""

    def __init__(self, needed: set[Path]) -> None:
        self._needed = needed
        self._files = 0
        self._bytes = 0

    def folder(self, original: Path, copy: Path) -> None:
        copy.mkdir(parents=True)
        for entry in sorted(original.iterdir()):
            target = copy / entry.name
            if entry.name in _NEVER_COPIED:
                if entry.name not in (".hotlap", "__pycache__"):
                    target.symlink_to(entry)
            elif entry.is_dir() and (entry in self._needed or _holds_python(entry)):
                self.folder(entry, target)
            elif entry.suffix == ".py" and entry.is_file():
                self._file(entry, target)
            else:
                target.symlink_to(entry)

    def _file(self, original: Path, copy: Path) -> None:
        self._files += 1
        self._bytes += original.stat().st_size
        if self._files > _MOST_FILES or self._bytes > _MOST_BYTES:
            raise UsageError(
                f"There is too much Python source around {original.parent} to copy it.",
                remedy="`--no-proof` shows the patch without running it.",
            )
        shutil.copy2(original, copy)


def _holds_python(folder: Path) -> bool:
    """Whether Python files lie directly in it; links are not followed."""
    if folder.is_symlink():
        return False
    try:
        with os.scandir(folder) as entries:
            return any(it.name.endswith(".py") for it in entries)
    except OSError:
        return False
