"""Removing folders with any contents: folders without permissions, as overlayfs leaves them, read-only and very deep
ones. Links are not followed, other file systems not entered."""

from __future__ import annotations

import errno
import os
import stat
import time
from contextlib import suppress

OWNER = ".hotlap-owner"
"""The file in a temporary folder that its owner has locked; it is removed last, since it identifies what is left."""

_LIMIT_SECONDS = 30.0
_MOST_ENTRIES = 5_000_000
_DEEPEST = 100


def remove(path: str) -> bool:
    """Remove one folder or file, and return whether it is gone. Raises no ``OSError``."""
    return Removal().remove(path)


class Removal:
    """Removes trees, all of them together within bounds of time and number."""

    def __init__(self) -> None:
        self._until = time.monotonic() + _LIMIT_SECONDS
        self._left = _MOST_ENTRIES
        self._moved = 0

    def remove(self, path: str) -> bool:
        """Remove a folder with its contents, or a file, and return whether it is gone."""
        before, name = os.path.split(path.rstrip("/"))
        try:
            parent = os.open(before or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(name, dir_fd=parent)
                return True
            self._empty_whole(name, parent, status.st_dev)
            os.rmdir(name, dir_fd=parent)
        except OSError:
            return False
        finally:
            os.close(parent)
        return True

    def _empty_whole(self, name: str, parent: int, device: int) -> None:
        """Empty a folder, again each time that something too deep was moved up into it."""
        top = _opened(name, parent)
        try:
            while True:
                moved = self._moved
                self._empty(name, parent, device, top, depth=0)
                if self._moved == moved:
                    return
        finally:
            os.close(top)

    def _empty(self, name: str, parent: int, device: int, top: int, depth: int) -> None:
        """Remove the contents of a folder as far as possible. The parent is writable by now."""
        descriptor = _opened(name, parent)
        try:
            if os.fstat(descriptor).st_dev != device:
                return
            with os.scandir(descriptor) as entries:
                children = [(it.name, it.is_dir(follow_symlinks=False)) for it in entries]
            children.sort(key=lambda it: it[0] == OWNER)
            for child, is_folder in children:
                self._left -= 1
                if self._left < 0 or time.monotonic() > self._until:
                    return
                with suppress(OSError):  # this one stays; the others need not
                    if not is_folder:
                        os.unlink(child, dir_fd=descriptor)
                    elif depth >= _DEEPEST:  # each level holds a file open
                        self._moved += 1
                        os.rename(child, f".moved-{self._moved}", src_dir_fd=descriptor, dst_dir_fd=top)
                    else:
                        self._empty(child, descriptor, device, top, depth + 1)
                        os.rmdir(child, dir_fd=descriptor)
        finally:
            os.close(descriptor)


def _opened(name: str, parent: int) -> int:
    """An open folder with the permissions that removing its entries needs. It is changed through a descriptor that
    follows no link."""
    path = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        if os.fstat(path).st_mode & 0o700 != 0o700:
            try:
                os.chmod(f"/proc/self/fd/{path}", 0o700)
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOENT):  # not ours; no /proc
                    raise
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    finally:
        os.close(path)
