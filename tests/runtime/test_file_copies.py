"""Copies of files that a script changes: whole, sparse where the original is, and never more than there is room for."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hotlap.runtime import file_copies
from hotlap.runtime.file_copies import copy_file

HUGE_BYTES = 20 * 2**30


def copied(source: Path, target: Path) -> None:
    copy_file(str(source), str(target), source.stat(), staging=str(target.parent))


@pytest.mark.parametrize("kernel_copies", [True, False])
def test_holes_stay_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kernel_copies: bool) -> None:
    if not kernel_copies:
        monkeypatch.delattr("posix.copy_file_range")
    source, target = tmp_path / "sparse", tmp_path / "copy"
    with source.open("wb") as file:
        file.write(b"head")
        file.seek(HUGE_BYTES // 2)
        file.write(b"middle")
        file.truncate(HUGE_BYTES)
    if source.stat().st_blocks * 512 > 2**30:
        pytest.skip("this file system has no holes")
    copied(source, target)
    assert target.stat().st_size == HUGE_BYTES
    assert target.stat().st_blocks * 512 < 2**20
    with target.open("rb") as file:
        assert file.read(5) == b"head\0"
        file.seek(HUGE_BYTES // 2)
        assert file.read(7) == b"middle\0"


@pytest.mark.parametrize("content", [b"", b"x", b"x" * 3_000_001])
def test_contents_are_the_same(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "source").write_bytes(content)
    copied(tmp_path / "source", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == content


def test_a_file_without_a_size_is_read_to_its_end(tmp_path: Path) -> None:
    copied(Path("/proc/self/status"), tmp_path / "copy")
    assert (tmp_path / "copy").read_text().startswith("Name:")


def test_a_file_that_there_is_no_room_for_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(2**20))
    os.sync()
    monkeypatch.setattr(file_copies, "_MOST_OF_ROOM", 1e-9)
    with pytest.raises(OSError) as caught:
        copied(source, tmp_path / "copy")
    assert caught.value.errno == errno.ENOSPC
    assert [it.name for it in tmp_path.iterdir()] == ["source"]
