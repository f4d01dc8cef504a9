"""Which folders count as caches, and which never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotlap.sandbox.caches import cache_folders


def test_the_homes_own(tmp_path: Path) -> None:
    assert str(tmp_path / ".cache") in cache_folders({}, str(tmp_path), ())


def test_of_a_home_of_libraries_only_the_caches(tmp_path: Path) -> None:
    """People keep checkpoints next to the hub's downloads."""
    found = cache_folders({"HF_HOME": str(tmp_path / "hf"), "TORCH_HOME": str(tmp_path / "torch")}, "/home/me", ())
    assert {str(tmp_path / it) for it in ("hf/hub", "hf/datasets", "torch/hub")} <= set(found)
    assert not {str(tmp_path / "hf"), str(tmp_path / "torch")} & set(found)


@pytest.mark.parametrize("above", ["", ".."])
def test_nothing_that_holds_the_project(tmp_path: Path, above: str) -> None:
    project = tmp_path / "work" / "project"
    project.mkdir(parents=True)
    found = cache_folders({"XDG_CACHE_HOME": str(project / above)}, "/home/me", [str(project)])
    assert str((project / above).resolve()) not in found


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "me").mkdir()
    (tmp_path / "me" / ".cache").symlink_to(tmp_path / "large")
    assert str(tmp_path / "large") in cache_folders({}, str(tmp_path / "me"), ())


VARIABLES = ("XDG_CACHE_HOME", "TRANSFORMERS_CACHE", "NUMBA_CACHE_DIR", "MPLCONFIGDIR", "HF_HOME", "TORCH_HOME")


@pytest.mark.parametrize("variable", VARIABLES)
@pytest.mark.parametrize("folder", ["/tmp", "/scratch/me", "/", "/dev/shm"])
def test_a_folder_for_anything_is_no_cache(variable: str, folder: str) -> None:
    """Checkpoints are kept there too."""
    found = cache_folders({variable: folder}, "/home/me", ())
    assert folder not in found
    assert not {f"{folder}/{it}" for it in ("ckpt", "datasets", "models")} & set(found)


def test_caches_of_libraries_in_a_folder_for_anything() -> None:
    assert "/scratch/me/huggingface" in cache_folders({"XDG_CACHE_HOME": "/scratch/me"}, "/home/me", ())
    assert "/scratch/me/hub" in cache_folders({"HF_HOME": "/scratch/me"}, "/home/me", ())


@pytest.mark.parametrize("folder", ["/scratch/me/.cache", "/scratch/cache/me", "/data/hf", "/x/pip-cache"])
def test_a_folder_that_is_called_a_cache(folder: str) -> None:
    assert folder in cache_folders({"XDG_CACHE_HOME": folder}, "/home/me", ())
