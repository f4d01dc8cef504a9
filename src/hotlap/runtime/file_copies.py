"""Copies of files that appear whole or not at all. Calls :mod:`posix`, since :mod:`os` is what gets redirected."""

from __future__ import annotations

import contextlib
import os
import stat
from errno import EINVAL, ENOSYS, ENOTSUP, EPERM, EXDEV

from hotlap.runtime.originals import posix

_CHUNK_BYTES = 1 << 20
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
    """Copy all bytes; the kernel shares the blocks where the file system can (Linux, ``copy_file_range(2)``)."""
    descriptor = posix.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(AttributeError):
            try:
                while posix.copy_file_range(descriptor, target, _CHUNK_BYTES << 10):
                    pass
            except OSError as failure:
                if failure.errno not in _UNSUPPORTED:
                    raise
        while block := posix.read(descriptor, _CHUNK_BYTES):
            view = memoryview(block)
            while view:
                view = view[posix.write(target, view) :]
    finally:
        posix.close(descriptor)
