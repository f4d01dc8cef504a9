"""Which files of a directory changed between two moments, for writers that nothing else catches."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

# Size in bytes and time of last change in nanoseconds, by path.
Snapshot: TypeAlias = Mapping[str, tuple[int, int]]

# Folders that are not the script's work, or too many files to look at.
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".hotlap", ".venv", "venv", "node_modules"})


def snapshot(directory: Path, limit: int = 20_000) -> Snapshot:
    """The files below ``directory``, nearest first and at most ``limit`` of them; links are not followed. What cannot
    be read, or vanishes meanwhile, is left out. The study's own folder, version control and environments are too."""
    found: dict[str, tuple[int, int]] = {}
    waiting = [str(directory)]
    for folder in waiting:
        try:
            with os.scandir(folder) as scanned:
                entries = sorted(scanned, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            if len(found) >= limit:
                return found
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in _LEFT_OUT:
                        waiting.append(entry.path)
                    continue
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode):
                found[entry.path] = (status.st_size, status.st_mtime_ns)
    return found


def changed(before: Snapshot, after: Snapshot) -> tuple[str, ...]:
    """The paths that were made, changed or removed between two snapshots of one directory, sorted."""
    return tuple(sorted(path for path in {*before, *after} if before.get(path) != after.get(path)))
