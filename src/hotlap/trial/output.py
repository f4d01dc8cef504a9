"""What a child writes to its terminal: kept in a file, bounded, and read back as text that is safe to show."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from pathlib import Path
from typing import BinaryIO

from hotlap.sandbox.kernel import remove_beginning

TAIL_BYTES = 65536
"""How much of the end of an output is read."""
SHOWN_LINES = 30
SHOWN_CHARACTERS = 4000
"""How much of it goes into a record."""

_LONGEST_ERROR = 500
_LONGEST_FILE_BYTES = 64 * 2**20
_KEPT_BYTES = 2**20
_MOST_KEPT_BYTES = 8 * 2**20
"""With what is written while the end of a file is read."""
_MOST_READ_BYTES = 64 * 2**20
"""Of a file whose writer goes on; a writer that is faster than the reading loses the rest."""
_LEFT_OUT = b"[hotlap left out the earlier output]\n"
_FOLLOW_SECONDS = 0.1
_FOLLOW_BYTES = 2**20

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_CONTROL_CHARACTER = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_RANK_PREFIX = re.compile(r"^(?:\[\w+\d+\]:)\s?")
_MARKS = "^~ \t"
TRACEBACK = "Traceback (most recent call last):"
# Raised by launchers because a trainer failed; the trainer's own error is more specific.
_SECOND_HAND = ("ChildFailedError", "ProcessRaisedException", "ProcessExitedException", "CalledProcessError")


def read_tail(path: Path) -> str:
    """The last 64 KiB of a file as text: undecodable bytes replaced, terminal control sequences removed, of a line that
    was overwritten in place (progress bars) only its last state. Empty when there is no such file."""
    try:
        with path.open("rb") as source:
            size = source.seek(0, 2)
            source.seek(max(0, size - TAIL_BYTES))
            raw = source.read(TAIL_BYTES)
    except OSError:
        return ""
    text = _ESCAPE_SEQUENCE.sub("", raw.decode("utf-8", "replace")).replace("\r\n", "\n")
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return _CONTROL_CHARACTER.sub("", "\n".join(lines))


def shown(tail: str) -> str:
    """The last lines of a tail, few enough to show."""
    return "\n".join(tail.rstrip().split("\n")[-SHOWN_LINES:])[-SHOWN_CHARACTERS:]


def error_text(tail: str) -> str:
    """The line that names the error: the last line of the last traceback, a launcher's only where there is no
    other, else the last line at all. At most 500 characters."""
    written = [line.strip() for line in plain_lines(tail) if line.strip()]
    return raised_error(tail) or (written or [""])[-1][:_LONGEST_ERROR]


def raised_error(tail: str, *, second_hand: bool = True) -> str:
    """The same, but nothing where there is no traceback, nor where only a launcher's may not count."""
    lines = plain_lines(tail)
    raised = [_raised_after(lines, index) for index, line in enumerate(lines) if TRACEBACK in line]
    own = [line for line in raised if line and not any(kind in line for kind in _SECOND_HAND)]
    choice = own or [line for line in raised if line and second_hand] or [""]
    return choice[-1][:_LONGEST_ERROR]


def plain_lines(tail: str) -> list[str]:
    """The lines of a tail without the ranks that launchers put before them."""
    return [_RANK_PREFIX.sub("", line) for line in tail.split("\n")]


def _raised_after(lines: list[str], start: int) -> str:
    """The first line after a traceback's frames, which are indented deeper than its header. The marks below a frame's
    source may not be: of what Dynamo raises, Python 3.11 writes them at the very left."""
    header = lines[start]
    indent = len(header) - len(header.lstrip(" |"))
    for line in lines[start + 1 :]:
        content = line[indent:]
        if content.strip(_MARKS) and not content.startswith((" ", "\t")):
            return content.strip()
    return ""


def trim(path: Path) -> None:
    """Trim a file that grew beyond 64 MiB to its last MiB, and what is written meanwhile. Its writer appends, so it
    continues at the new end. Where the file system cannot cut off a file's beginning (ext4 and XFS can), what is
    written at the very moment of the cut may be lost."""
    try:
        if path.stat().st_size <= _LONGEST_FILE_BYTES:
            return
        with path.open("r+b") as file:
            if not _cut_beginning(file):
                _rewrite(file)
    except OSError:
        return


def _cut_beginning(file: BinaryIO) -> bool:
    """Whether the beginning could be cut off at once, between two writes of the writer; a note covers what is left of
    the line that was cut."""
    block = os.fstatvfs(file.fileno()).f_bsize
    early = (file.seek(0, 2) - _KEPT_BYTES) // block * block
    try:
        remove_beginning(file.fileno(), early)
    except OSError:
        return False
    file.seek(0)
    file.write(_LEFT_OUT)
    return True


def _rewrite(file: BinaryIO) -> None:
    """Read the end of the file, empty it and write that end again."""
    file.seek(-_KEPT_BYTES, 2)
    kept = file.read(_KEPT_BYTES)
    count = len(kept)
    while count < _MOST_READ_BYTES and (more := file.read(_KEPT_BYTES)):  # written meanwhile
        kept = (kept + more)[-_MOST_KEPT_BYTES:]
        count += len(more)
    file.truncate(0)
    file.seek(0)
    file.write(_LEFT_OUT + kept)


class Follower:
    """Passes on what is appended to a file, as it is, in a thread of its own."""

    def __init__(self, path: Path, sink: BinaryIO | None = None) -> None:
        self._path = path
        self._sink = sink if sink is not None else sys.stderr.buffer
        self._position = 0
        self._finished = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="hotlap-output", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Pass on what is left and end the thread."""
        self._finished.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._finished.wait(_FOLLOW_SECONDS):
            self._pass_on()
        self._pass_on()

    def _pass_on(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as source:
            if source.seek(0, 2) < self._position:  # it was trimmed
                self._position = 0
            source.seek(self._position)
            shutil.copyfileobj(source, self._sink, _FOLLOW_BYTES)
            self._position = source.tell()
        self._sink.flush()
