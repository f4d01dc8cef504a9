"""Files of other users or groups that this user may change: no ordinary user's layer can hold a copy of them.

A user namespace knows the user and the user's first group alone, and overlayfs copies a file with its owner and group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_DEEPEST, _MOST_LOOKED_AT = 3, 4000


def of_others(folder: Path) -> str:
    """The path of one that is in the folder, near its top: removed or written to in a layer of overlayfs, it fails with
    EOVERFLOW. Empty where none was found, and always for root."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        return ""
    waiting, seen = [(str(folder), 0)], 0
    while waiting:
        path, depth = waiting.pop(0)
        removable = _may_remove_all_in(path)
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    seen += 1
                    if seen > _MOST_LOOKED_AT:
                        return ""
                    status = entry.stat(follow_symlinks=False)
                    writable = not stat.S_ISLNK(status.st_mode) and os.access(entry.path, os.W_OK)
                    foreign = (status.st_uid, status.st_gid) != (user, group)
                    if foreign and (writable or removable):
                        return entry.path
                    if stat.S_ISDIR(status.st_mode) and depth < _DEEPEST:
                        waiting.append((entry.path, depth + 1))
        except OSError:  # gone, or without permission
            continue
    return ""


def _may_remove_all_in(folder: str) -> bool:
    try:
        sticky = Path(folder).stat().st_mode & stat.S_ISVTX
    except OSError:
        return False
    return not sticky and os.access(folder, os.W_OK | os.X_OK)
