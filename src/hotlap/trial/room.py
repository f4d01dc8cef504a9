"""What a run wrote into its layers, and whether the disk has room for it."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from hotlap.files import home_directory
from hotlap.records import FileWrite
from hotlap.sandbox.written import read_only_points, written_bytes, written_files

_RESERVE_SHARE = 0.1
_RESERVE_BYTES = 256 * 2**20
_MOST_SHARE = 0.75
_NOT_WORTH_ENDING_BYTES = 64 * 2**20
_LOOK_SECONDS = 5.0
_MOST_NAMES = 1000


class Room:
    """Watches that a run does not fill the disk: a file of the user's that it changes is copied as a whole first.

    A run may take three quarters of what was free when it began, and must leave a tenth, or 256 MiB.
    """

    def __init__(self, layers: Path) -> None:
        self._layers = layers
        self._free_bytes = _free(layers)
        self._known_bytes = 0
        self._looked_at = 0.0

    def trouble(self) -> str:
        """Why the run must end; empty while it may continue."""
        free = _free(self._layers)
        least = min(max(self._free_bytes * _RESERVE_SHARE, _RESERVE_BYTES), self._free_bytes / 2)
        taken = self._free_bytes - free
        if free >= least and taken <= self._free_bytes * _MOST_SHARE:
            return ""
        written = self._written()
        if written < _NOT_WORTH_ENDING_BYTES or (free >= least and written <= self._free_bytes * _MOST_SHARE):
            return ""
        return (
            f"it would have filled the disk: {written / 2**30:.1f} GiB written (a file that it changes is copied as a "
            f"whole first) and {free / 2**30:.1f} GiB free"
        )

    def _written(self) -> int:
        """The size of the layers, computed only now and then, since they may hold many files."""
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._known_bytes = written_bytes(str(self._layers))
        return self._known_bytes


def written_names(layers: Path, directory: str) -> tuple[FileWrite, ...]:
    """The files that a run in that directory made or changed, but for compiled Python and new files in the temporary
    directory, unless that is where the project or the home is; at most a thousand."""
    return tuple(islice(_told(layers, directory), _MOST_NAMES))


def _told(layers: Path, directory: str) -> Iterator[FileWrite]:
    temporary = Path(tempfile.gettempdir()).resolve()
    own = [it.resolve() for it in (Path(directory), home_directory()) if it is not None]
    for path in written_files(str(layers)):
        if "/__pycache__/" in path:
            continue
        new = not os.path.lexists(path)
        if new and Path(path).is_relative_to(temporary) and not any(Path(path).is_relative_to(it) for it in own):
            continue
        yield FileWrite(path=path.encode("utf-8", "backslashreplace").decode(), redirected=True)


def read_only_sentence(layers: Path) -> str:
    """A sentence on places that could not be written to; empty where there are none."""
    points = read_only_points(str(layers))
    return f"No layer can cover {', '.join(points)}: read-only in trials." if points else ""


def _free(layers: Path) -> int:
    """Free bytes on the disk that holds the layers, or will."""
    return shutil.disk_usage(next(it for it in (layers, *layers.parents) if it.exists())).free
