"""Where a layer of the run's own (overlayfs) behaves unlike the files below it, and what is done about it.

- An ordinary user's layers cannot rename a folder that was there before, nor move anything from one layer to another:
  both give ``EXDEV``. :func:`os.rename` and :func:`os.replace` then copy, as ``mv`` does.
- ``fsync`` costs nothing, since nothing of a layer is worth keeping. The report says so if the script calls it.

Source: the Linux documentation of overlayfs, "Renaming directories" and "Volatile mount".
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

Call = Callable[..., Any]


class Layered:
    """The stand-ins of one process; ``notes`` are sentences for the report."""

    def __init__(self) -> None:
        self._synced = 0

    def install(self) -> None:
        """Put the stand-ins in place of :mod:`os`'s functions."""
        if not _root_is_a_layer():
            os.rename, os.replace = _copying(os.rename), _copying(os.replace)
        os.fsync, os.fdatasync = self._counting(os.fsync), self._counting(os.fdatasync)

    @property
    def notes(self) -> list[str]:
        """The notes on this process."""
        if not self._synced:
            return []
        return [f"The script called fsync {self._synced} times, which costs nothing in trials: alone it takes longer."]

    def _counting(self, original: Call) -> Call:
        @wraps(original)
        def counted(*arguments: Any, **keywords: Any) -> Any:
            self._synced += 1
            return original(*arguments, **keywords)

        return counted


def _copying(original: Call) -> Call:
    @wraps(original)
    def rename(source: Any, target: Any, **keywords: Any) -> None:
        try:
            original(source, target, **keywords)
        except OSError as error:
            if error.errno != errno.EXDEV or any(it is not None for it in keywords.values()):
                raise
            _move(os.fsdecode(source), os.fsdecode(target), original)

    return rename


def _move(source: str, target: str, rename: Call) -> None:
    """Copy next to the target, give the copy its name, and remove the source. Raises :class:`OSError` as rename does
    where the target is a folder that is not empty, or of another kind."""
    import shutil  # which few scripts need
    import tempfile

    temporary = tempfile.mkdtemp(prefix=".hotlap-", dir=os.path.dirname(target.rstrip("/")) or ".")  # noqa: PTH120
    try:
        copy = os.path.join(temporary, "copy")  # noqa: PTH118
        if os.path.isdir(source) and not os.path.islink(source):  # noqa: PTH112, PTH114
            shutil.copytree(source, copy, symlinks=True)
            rename(copy, target)
            shutil.rmtree(source)
        else:
            shutil.copy2(source, copy, follow_symlinks=False)
            rename(copy, target)
            os.unlink(source)  # noqa: PTH108
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _root_is_a_layer() -> bool:
    """Whether one layer lies over everything, as it does for an administrator."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        fields = line.split(b" ")
        divider = fields.index(b"-")
        if fields[4] == b"/" and fields[divider + 1 : divider + 3] == [b"overlay", b"hotlap"]:
            return True
    return False
