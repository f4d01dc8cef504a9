"""Keep the code that torch's compiler made, so that a study does not compile the same in each of its launches.

Inductor stores the code of a graph in a folder and loads it where the same graph is compiled again, in another process
too (PyTorch's documentation, "Compile Time Caching in torch.compile"), as it does from one run of the user's to the
next. Kept is only what a launch made that was alone: beside others, the compiler would measure under their load which
kernels are fastest. Choices that each launch makes by itself (``*.best_config``) are not kept, so that replicates do
not share one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

MOST_BYTES = 256 * 2**20
MOST_FILES = 20_000
"""More than that is not kept: each launch gets a copy, and a script may write anything there."""

_NOT_KEPT = (".best_config", ".lock", ".tmp")


class KeptCode:
    """The code that is kept in ``folder``, which belongs to a study."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = 0

    def keep(self, made: Path) -> None:
        """Add what a launch that was alone, and has ended well, left in its folder. Files are left out that do not fit
        or cannot be copied."""
        for path in islice(_files(made), MOST_FILES):
            kept, size = self._folder / path.relative_to(made), path.stat().st_size
            if self._bytes + size <= MOST_BYTES and not os.path.lexists(kept) and _copied(path, kept):
                self._bytes += size

    def give(self, folder: Path) -> None:
        """Copy it all to the folder of a launch that is about to begin, which compiles by itself what it lacks."""
        for path in _files(self._folder):
            _copied(path, folder / path.relative_to(self._folder))


def _files(folder: Path) -> Iterator[Path]:
    """The regular files below a folder of a script's, which may hold anything; links are not followed."""
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            path = Path(place, name)
            if not name.endswith(_NOT_KEPT) and path.is_file() and not path.is_symlink():
                yield path


def _copied(path: Path, target: Path) -> bool:
    """Whether it could be copied; no copy is left that is not whole."""
    part = target.with_name(f"{target.name}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, part, follow_symlinks=False)
        shutil.copymode(path, part, follow_symlinks=False)
        part.rename(target)
    except OSError:
        with suppress(OSError):  # it may have no place at all: a file where its folder would be, too long a name
            part.unlink()
        return False
    return True
