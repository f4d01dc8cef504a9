"""What an ordinary user's layers cannot do is emulated; what a layer does too cheaply is reported."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hotlap.runtime.layered import Layered


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """``os.rename`` and ``os.replace`` refuse the content of ``old``, as overlayfs refuses old folders."""
    asked: list[str] = []
    rename = os.rename

    def refuse(source: str | Path, target: str | Path, **keywords: object) -> None:
        asked.append(os.fspath(source))
        if os.fspath(source) in ("old/ckpt", "old/file"):
            raise OSError(errno.EXDEV, "Invalid cross-device link", os.fspath(source))
        rename(source, target)

    for name in ("rename", "replace", "fsync", "fdatasync"):
        monkeypatch.setattr(os, name, refuse if name.startswith("re") else getattr(os, name))
    yield asked


@pytest.fixture
def layered(refused: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layered:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old" / "ckpt" / "deep").mkdir(parents=True)
    (tmp_path / "old" / "ckpt" / "deep" / "best.pt").write_text("best")
    (tmp_path / "old" / "ckpt" / "link").symlink_to("deep/best.pt")
    (tmp_path / "old" / "file").write_text("file")
    made = Layered()
    made.install()
    return made


def test_an_old_folder_is_renamed_by_copying(layered: Layered, tmp_path: Path) -> None:
    Path("old/ckpt").rename("old/kept")
    assert not Path("old/ckpt").exists()
    assert Path("old/kept/deep/best.pt").read_text() == "best"
    assert Path("old/kept/link").is_symlink()
    Path("old/file").replace("old/other")
    assert Path("old/other").read_text() == "file"
    assert sorted(it.name for it in Path("old").iterdir()) == ["kept", "other"]


def test_a_folder_that_is_not_empty_is_not_replaced(layered: Layered) -> None:
    Path("target").mkdir()
    Path("target/mine").write_text("mine")
    with pytest.raises(OSError, match="not empty"):
        Path("old/ckpt").rename("target")
    assert Path("old/ckpt/deep/best.pt").read_text() == "best"
    assert [it.name for it in Path("target").iterdir()] == ["mine"]
    assert sorted(it.name for it in Path().iterdir()) == ["old", "target"]


def test_other_errors_are_the_scripts(layered: Layered) -> None:
    with pytest.raises(FileNotFoundError):
        Path("nothing").rename("something")


def test_fsync_is_counted(layered: Layered) -> None:
    assert layered.notes == []
    with Path("saved").open("w") as file:
        os.fsync(file.fileno())
        os.fdatasync(file.fileno())
    assert layered.notes == ["The script called fsync 2 times, which costs nothing in trials: alone it takes longer."]
