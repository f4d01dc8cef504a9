"""Find the files to check: named files, and those below named folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hotlap.errors import LintError
from hotlap.source.lint.configuration import Configuration

SUFFIXES = frozenset({".py", ".ipynb"})
_LEFT_OUT = frozenset(
    {
        ".git", ".hg", ".svn", ".bzr", ".tox", ".nox", ".venv", "venv", ".eggs", ".hotlap", ".mypy_cache",
        ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints", "__pycache__", "node_modules", "build", "dist",
        "site-packages",
    }
)  # fmt: skip
"""Folders without sources of the project; explicitly named folders are searched anyway."""


def files_of(paths: Sequence[Path], configuration: Configuration) -> list[Path]:
    """List every file once, in order. Named files are included whatever their suffix and the exclusions.

    Raises :class:`LintError` for a path that does not exist.
    """
    found: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            for file in _below(path, configuration):
                found.setdefault(file.absolute(), file)
        elif path.exists():
            found.setdefault(path.absolute(), path)
        else:
            raise LintError("There is no such file or folder.", where=str(path), remedy="Name a file or a folder.")
    return list(found.values())


def _below(folder: Path, configuration: Configuration) -> Iterator[Path]:
    for here, folders, files in os.walk(folder):
        place = Path(here)
        folders[:] = sorted(it for it in folders if not _is_left_out(place / it, configuration))
        for name in sorted(files):
            file = place / name
            if file.suffix in SUFFIXES and not configuration.excludes(file):
                yield file


def _is_left_out(folder: Path, configuration: Configuration) -> bool:
    return folder.name in _LEFT_OUT or (folder / "pyvenv.cfg").exists() or configuration.excludes(folder)
