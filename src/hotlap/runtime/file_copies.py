"""Copies of files that appear whole or not at all. Calls :mod:`posix`, since :mod:`os` is what gets redirected."""

from __future__ import annotations

import contextlib
import fcntl
import os
import posix
import stat
from collections.abc import Iterator
from errno import EINVAL, ENOSPC, ENOSYS, ENOTSUP, ENXIO, EPERM, EXDEV

_CHUNK_BYTES = 1 << 20
_WHOLE = 1 << 62
_BLOCK_BYTES = 512
_MOST_OF_ROOM = 0.75
_FICLONE = 0x40049409
_UNSUPPORTED = frozenset({EINVAL, ENOSYS, ENOTSUP, EPERM, EXDEV})


def error(number: int) -> OSError:
    """The exception that the system raises for this ``errno``; the file's name is filled in by whoever knows it."""
    return OSError(number, os.strerror(number))


def status_of(path: str) -> os.stat_result | None:
    """``lstat``, or None where nothing is."""
    try:
        return posix.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def copy_file(
    source: str, target: str, status: os.stat_result, *, staging: str, contents: bool = True, replace: bool = True
) -> None:
    """Copy a file (or link) with its mode and times, by way of a hidden copy in the folder ``staging``, which must be
    on the target's file system.

    ``contents=False`` makes an empty file. With ``replace=False`` a target that exists is left as it is. A disk that
    fills raises its ``OSError`` and leaves nothing behind.
    """
    staged = f"{staging}/.{posix.getpid()}-{posix.urandom(8).hex()}"
    try:
        if stat.S_ISLNK(status.st_mode):
            posix.symlink(posix.readlink(source), staged)
        else:
            descriptor = posix.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                if contents:
                    _pour(source, descriptor)
                posix.fchmod(descriptor, stat.S_IMODE(status.st_mode))
            finally:
                posix.close(descriptor)
            posix.utime(staged, ns=(status.st_atime_ns, status.st_mtime_ns))
        _put(staged, target, replace=replace)
    finally:
        with contextlib.suppress(FileNotFoundError):
            posix.unlink(staged)


def _put(staged: str, target: str, *, replace: bool) -> None:
    if not replace:
        try:
            posix.link(staged, target, follow_symlinks=False)
        except FileExistsError:
            return  # another process was faster
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED:
                raise
        else:
            return
    posix.rename(staged, target)


def _pour(source: str, target: int) -> None:
    """Copy the contents; the kernel shares the blocks where the file system can, and holes stay holes.

    Raises :class:`OSError` (``ENOSPC``) before it takes more than three quarters of the room that is free.
    """
    descriptor = posix.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _cloned(descriptor, target):
            return
        status, room = posix.fstat(descriptor), posix.fstatvfs(target)
        if status.st_blocks * _BLOCK_BYTES > room.f_bavail * room.f_frsize * _MOST_OF_ROOM:
            raise error(ENOSPC)
        for start, end in _data(descriptor, status.st_size):
            _pour_part(descriptor, target, start, end)
        posix.ftruncate(target, max(status.st_size, posix.lseek(target, 0, os.SEEK_END)))
    finally:
        posix.close(descriptor)


def _cloned(source: int, target: int) -> bool:
    """Share all blocks (``ioctl_ficlone(2)``); whether the file system can."""
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError:
        return False
    return True


def _data(descriptor: int, size: int) -> Iterator[tuple[int, int | None]]:
    """Where a file holds data, from and to; to None for "as far as it goes", which files without a size need."""
    position = 0
    while position < size:
        try:
            start = posix.lseek(descriptor, position, os.SEEK_DATA)
            position = posix.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as failure:
            if failure.errno == ENXIO:  # nothing but a hole follows
                return
            break  # the file system knows of no holes
        yield start, position
    else:
        if size:
            return
    yield position, None


def _pour_part(source: int, target: int, start: int, end: int | None) -> None:
    posix.lseek(source, start, os.SEEK_SET)
    posix.lseek(target, start, os.SEEK_SET)
    left = _WHOLE if end is None else end - start
    with contextlib.suppress(AttributeError):
        try:
            while left and (count := posix.copy_file_range(source, target, min(left, _CHUNK_BYTES << 10))):
                left -= count
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED:
                raise
    while left and (block := posix.read(source, min(left, _CHUNK_BYTES))):
        left -= len(block)
        view = memoryview(block)
        while view:
            view = view[posix.write(target, view) :]
