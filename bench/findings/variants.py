"""Copies of planted scripts without their cause."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.findings.planted import Cure, Planted


def plain_copy(planted: Planted, folder: Path) -> Path:
    """A copy of the script, with the other files of its project, in a new folder; returns the script."""
    if planted.is_project:
        shutil.copytree(planted.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir(parents=True)
        shutil.copy2(planted.path, folder / planted.script)
    return folder / planted.script


def cured_copy(planted: Planted, cure: Cure, folder: Path) -> Path:
    """Such a copy with the cure's edits. Raises :class:`ValueError` where an edit's text does not occur just once."""
    script = plain_copy(planted, folder)
    for edit in cure.edits:
        path = folder / (edit.file or planted.script)
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{planted.name}: {edit.old!r} occurs {text.count(edit.old)} times in {path.name}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return script
