"""Copies of files that appear whole or not at all. Calls :mod:`posix`, since :mod:`os` is what gets redirected."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Iterator
from errno import EACCES, EINVAL, ENODATA, ENOSPC, ENOSYS, ENOTSUP, ENXIO, EPERM, EXDEV

from hotlap.runtime.originals import posix

_CHUNK_BYTES = 1 << 20
_MOST_OF_ROOM = 0.75
_UNSUPPORTED = frozenset({EINVAL, ENOSYS, ENOTSUP, EPERM, EXDEV})
_NOT_KEPT = _UNSUPPORTED | {EACCES, ENODATA, ENOSPC}
_BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system's is


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
    """Copy a file (or link) with its mode, times and attributes, by way of a hidden copy in the folder ``staging``,
    which must be on the target's file system.

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
            copy_attributes(source, staged)
            posix.utime(staged, ns=(status.st_atime_ns, status.st_mtime_ns))
        _put(staged, target, replace=replace)
    finally:
        with contextlib.suppress(FileNotFoundError):
            posix.unlink(staged)


def copy_attributes(source: str, target: str) -> None:
    """Copy the extended attributes that this user may set and that the target's file system can hold."""
    if sys.platform == "darwin":
        return
    try:
        names = posix.listxattr(source)
    except OSError as failure:
        if failure.errno not in _UNSUPPORTED:
            raise
        return
    for name in names:
        try:
            posix.setxattr(target, name, posix.getxattr(source, name))
        except OSError as failure:
            if failure.errno not in _NOT_KEPT:
                raise


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
    """Copy all bytes but those of holes.

    Raises :class:`OSError` (``ENOSPC``) before it takes more than three quarters of the room that is free.
    """
    descriptor = posix.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status, room = posix.fstat(descriptor), posix.fstatvfs(target)
        if status.st_blocks * _BLOCK_BYTES > room.f_bavail * room.f_frsize * _MOST_OF_ROOM:
            raise error(ENOSPC)
        if status.st_blocks * _BLOCK_BYTES >= status.st_size or not hasattr(os, "SEEK_DATA"):
            _pour_range(descriptor, target, None)
            return
        for start, end in _written_ranges(descriptor, status.st_size):
            posix.lseek(descriptor, start, os.SEEK_SET)
            posix.lseek(target, start, os.SEEK_SET)
            _pour_range(descriptor, target, end - start)
        posix.ftruncate(target, status.st_size)
    finally:
        posix.close(descriptor)


def _written_ranges(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Where a file is no hole, as (start, end) in bytes."""
    end = 0
    while end < size:
        try:
            start = posix.lseek(descriptor, end, os.SEEK_DATA)
            end = posix.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as failure:
            if failure.errno == ENXIO:  # nothing but a hole follows
                return
            if failure.errno not in _UNSUPPORTED:
                raise
            start, end = end, size
        yield start, end


def _pour_range(source: int, target: int, length: int | None) -> None:
    """Copy so many bytes, or all that follow; the kernel shares the blocks where the file system can (Linux,
    ``copy_file_range(2)``)."""
    left = _CHUNK_BYTES << 20 if length is None else length
    with contextlib.suppress(AttributeError):
        try:
            while left and (copied := posix.copy_file_range(source, target, min(left, _CHUNK_BYTES << 10))):
                left -= copied
        except OSError as failure:
            if failure.errno not in _UNSUPPORTED:
                raise
    while left and (block := posix.read(source, min(left, _CHUNK_BYTES))):
        left -= len(block)
        view = memoryview(block)
        while view:
            view = view[posix.write(target, view) :]
