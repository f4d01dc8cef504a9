"""Folders that may hold anything are removed as a whole, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hotlap.sandbox import removal


def test_folders_without_permissions_go(tmp_path: Path) -> None:
    work = tmp_path / "layers" / "0" / "work" / "work"
    work.mkdir(parents=True)
    (work / "left").touch()
    work.chmod(0)
    (tmp_path / "layers" / "0" / "work").chmod(0o500)
    assert removal.remove(str(tmp_path / "layers"))
    assert not (tmp_path / "layers").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kept").touch()
    (tmp_path / "going").mkdir()
    (tmp_path / "going" / "link").symlink_to(tmp_path / "mine")
    assert removal.remove(str(tmp_path / "going"))
    assert (tmp_path / "mine" / "kept").exists()


def test_deep_folders_go(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    descriptor = os.open(tmp_path / "deep", os.O_RDONLY)
    for _ in range(1500):  # deeper than paths, descriptors and Python's stack go
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    assert removal.remove(str(tmp_path / "deep"))


def test_files_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert removal.remove(str(tmp_path / "file"))
    assert not removal.remove(str(tmp_path / "file"))


def test_it_ends_within_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_MOST_ENTRIES", 3)
    for number in range(10):
        (tmp_path / "many" / str(number)).mkdir(parents=True)
    assert not removal.remove(str(tmp_path / "many"))
    assert len(list((tmp_path / "many").iterdir())) == 7
