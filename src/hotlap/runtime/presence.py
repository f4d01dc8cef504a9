"""The mark that each process of a trial leaves: ``processes/<process number>`` in the run's folder.

The controller compares the marks with the processes that it sees (:mod:`hotlap.trial.foreign_processes`): one that has
torch loaded and left no mark escaped hotlap. A mark holds one word, or ``failed`` and a sentence, and spaces behind it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from hotlap.runtime.originals import posix

BOOTED = "booted"
IMPORTING = "importing"
"""The code of torch is running, or has failed while it ran."""
TORCH = "torch"
FAILED = "failed"
_LEAST_BYTES = 16
"""No word is longer, so each covers the one before it: the file is never cut, and never read empty."""

_folder = ""
_word = BOOTED


def begin(run_directory: Path) -> None:
    """Leave a mark for this process, and for those that will be forked from it. Raises ``OSError``."""
    global _folder
    folder = run_directory / "processes"
    folder.mkdir(exist_ok=True)
    _folder = str(folder)
    os.register_at_fork(after_in_child=_forked)
    note(BOOTED)


def note(word: str) -> None:
    """Replace the mark of this process. Does nothing in a process that is not part of a trial. Raises ``OSError``."""
    global _word
    _word = word
    if not _folder:
        return
    # By the functions of posix: those of os may be stand-ins, which need longer.
    descriptor = posix.open(f"{_folder}/{posix.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        posix.write(descriptor, word.encode("utf-8", "backslashreplace").ljust(_LEAST_BYTES))
    finally:
        posix.close(descriptor)


def _forked() -> None:
    with contextlib.suppress(OSError):  # a full disk must fail the script's own write
        note(_word)
