"""The end of an output that grew too long is kept, also what is written meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from hotlap.sandbox.kernel import remove_beginning
from hotlap.trial import output


class Overtaken:
    """A file to which its writer appends right after each of the first reads."""

    def __init__(self, path: Path, words: list[bytes]) -> None:
        self._file: BinaryIO = os.fdopen(os.open(path, os.O_RDWR), "r+b")
        self._end = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._words = words

    def read(self, count: int = -1) -> bytes:
        found = self._file.read(count)
        if self._words:
            os.write(self._end, self._words.pop(0))
        return found

    def __enter__(self) -> Overtaken:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        os.close(self._end)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_what_is_written_while_an_output_is_trimmed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "_LONGEST_FILE_BYTES", 1000)
    monkeypatch.setattr(output, "_KEPT_BYTES", 100)
    path = tmp_path / "output.txt"
    path.write_bytes(b"early" + 2000 * b"." + b"the end\n")
    words = [b"more words\n", b"the last words\n"]
    monkeypatch.setattr(Path, "open", lambda self, mode: Overtaken(self, words))
    output.trim(path)
    kept = path.read_bytes()
    assert kept.startswith(b"[hotlap left out the earlier output]\n") and b"early" not in kept
    assert kept.endswith(b".the end\nmore words\nthe last words\n") and not words
    assert len(kept) < 200


def test_a_writer_that_is_faster_does_not_keep_it_from_being_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_LONGEST_FILE_BYTES", 1000)
    monkeypatch.setattr(output, "_KEPT_BYTES", 100)
    monkeypatch.setattr(output, "_MOST_KEPT_BYTES", 500)
    monkeypatch.setattr(output, "_MOST_READ_BYTES", 500)
    path = tmp_path / "output.txt"
    path.write_bytes(2000 * b".")
    words = [100 * b"x"] * 50
    monkeypatch.setattr(Path, "open", lambda self, mode: Overtaken(self, words))
    output.trim(path)
    assert len(path.read_bytes()) <= 700 and len(words) > 40


def test_the_end_of_what_is_written_while_an_output_is_read_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_LONGEST_FILE_BYTES", 1000)
    monkeypatch.setattr(output, "_KEPT_BYTES", 100)
    monkeypatch.setattr(output, "_MOST_KEPT_BYTES", 300)
    path = tmp_path / "output.txt"
    path.write_bytes(2000 * b".")
    words = [*(100 * b"x" for _ in range(20)), b"the last words\n"]
    monkeypatch.setattr(Path, "open", lambda self, mode: Overtaken(self, words))
    output.trim(path)
    kept = path.read_bytes()
    assert kept.endswith(b"x" + b"the last words\n") and not words
    assert len(kept) < 400


def test_nothing_is_lost_between_two_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not _can_cut_beginnings(tmp_path):
        pytest.skip("this file system cannot cut off the beginning of a file")
    monkeypatch.setattr(output, "_LONGEST_FILE_BYTES", 100_000)
    monkeypatch.setattr(output, "_KEPT_BYTES", 20_000)
    path = tmp_path / "output.txt"
    path.touch()
    with subprocess.Popen([sys.executable, "-c", _COUNTS, path]) as writer:
        while writer.poll() is None:
            output.trim(path)
            numbers = [int(it) for it in path.read_bytes().split(b"\n")[2:-1]]  # after the note and what it cut
            assert not numbers or numbers == list(range(numbers[0], numbers[-1] + 1))
    output.trim(path)  # a busy machine may have left no moment for it before
    assert writer.returncode == 0
    assert path.read_bytes().startswith(b"[hotlap left out the earlier output]\n")
    assert path.read_bytes().endswith(b"\n99999\n")


_COUNTS = """
import os, sys
end = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for number in range(100_000):
    os.write(end, b"%d\\n" % number)
"""


def _can_cut_beginnings(folder: Path) -> bool:
    probe = folder / "probe"
    probe.write_bytes(bytes(2 * os.statvfs(folder).f_bsize))
    with probe.open("r+b") as file:
        try:
            remove_beginning(file.fileno(), os.statvfs(folder).f_bsize)
        except OSError:
            return False
    return True


def test_a_short_output_stays(tmp_path: Path) -> None:
    path = tmp_path / "output.txt"
    path.write_bytes(b"short\n")
    output.trim(path)
    output.trim(tmp_path / "absent.txt")
    assert path.read_bytes() == b"short\n"
