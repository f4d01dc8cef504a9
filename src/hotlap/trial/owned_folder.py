"""A temporary folder that is gone when we are, however we end."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hotlap.sandbox import removal
from hotlap.trial.guard import guard
from hotlap.trial.sweeping import disown, make_own


@contextmanager
def owned_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new folder in ``parent`` (the temporary directory, if None), removed at the end; after ``kill -9`` the watchdog
    removes it, and where that was killed too, a later hotlap, but only from the temporary directory. Raises
    :class:`hotlap.errors.HotlapError` when it cannot be made."""
    folder = make_own(prefix, str(parent) if parent is not None else tempfile.gettempdir())
    try:
        guard().expect(str(folder))
        yield folder
    finally:
        removal.remove(str(folder))
        disown(folder)
        guard().release(str(folder))
