"""Which study a command means, and a remark where it is not the newest."""

from __future__ import annotations

from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.records import Study
from hotlap.study import Need


def named_folder(path: Path, need: Need) -> Path:
    """The study that a path names, or the last one with what is needed. Raises :class:`hotlap.errors.StudyError`."""
    found = api.find_study(path, need)
    if found.passed_over:
        screen.note(found.passed_over)
    return found.directory


def named_study(path: Path, need: Need) -> Study:
    """The same, read."""
    return api.load_study(named_folder(path, need))
