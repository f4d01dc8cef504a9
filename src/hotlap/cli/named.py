"""Find the study that a command names, and say if it is not the newest."""

from __future__ import annotations

from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.records import Study
from hotlap.study import Need


def named_folder(path: Path, need: Need) -> Path:
    """Find the study at a path, or the last one that has what is needed.

    Raises :class:`hotlap.errors.StudyError`.
    """
    found = api.find_study(path, need)
    if found.passed_over:
        screen.note(found.passed_over)
    return found.directory


def named_study(path: Path, need: Need) -> Study:
    """Find the study and read it."""
    return api.load_study(named_folder(path, need))
