"""Copies of planted scripts without their cause."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from bench.findings.planted import Cure, Edit, Planted


def plain_copy(planted: Planted, folder: Path) -> Path:
    """A copy of the script, with the other files of its project, in a new folder; returns the script."""
    if planted.is_project:
        shutil.copytree(planted.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        folder.mkdir(parents=True)
        shutil.copy2(planted.path, folder / planted.script)
    return folder / planted.script


def both_copies(planted: Planted, cure: Cure, folder: Path) -> tuple[Path, Path]:
    """An unmodified copy and one with the cure's edits; both get the edits for both sides. Raises :class:`ValueError`
    where an edit's text does not occur just once."""
    edits = {"as-it-is": cure.both, "cured": (*cure.both, *cure.edits)}
    plain, cured = (_edited(planted, it, folder / name / "project") for name, it in edits.items())
    return plain, cured


def _edited(planted: Planted, edits: Sequence[Edit], folder: Path) -> Path:
    script = plain_copy(planted, folder)
    for edit in edits:
        path = folder / (edit.file or planted.script)
        text = path.read_text(encoding="utf-8")
        if text.count(edit.old) != 1:
            raise ValueError(f"{planted.name}: {edit.old!r} occurs {text.count(edit.old)} times in {path.name}")
        path.write_text(text.replace(edit.old, edit.new), encoding="utf-8")
    return script
