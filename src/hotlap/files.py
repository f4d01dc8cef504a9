"""Opening and replacing files that others may have written: never a pipe, never more than is sensible, never a link.

Every error is an :class:`OSError` whose ``strerror`` completes "The file cannot be read: ...", so that each caller says
it in its own words. All of it works on every system: flags and locks that one lacks are left out there.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import BinaryIO

MEBIBYTE = 2**20


def _flag(name: str) -> int:
    """A flag of ``os.open``; none where the system has no such flag."""
    value: int = getattr(os, name, 0)
    return value


UNSHARED = _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_BINARY")
"""Flags for every file that is opened here: not inherited by other programs, never blocking, binary."""

NO_LINK = _flag("O_NOFOLLOW")
"""The flag that refuses a link; 0 on a system without it."""


class NotRegularError(OSError):
    """The path names a folder, a pipe, a device, a socket, or a link where none is followed."""


class TooLargeError(OSError):
    """The file has more bytes than are read of such a file; ``size`` is how many."""

    def __init__(self, path: Path, size: int, limit_bytes: int) -> None:
        super().__init__(errno.EFBIG, f"it has {size} bytes; at most {limit_bytes} are read", str(path))
        self.size = size


def open_regular(path: Path, limit_bytes: int | None = None, *, follow: bool = True) -> BinaryIO:
    """The file, opened for reading. A pipe would block for ever and a device never end, so they are refused.

    With ``follow`` False the last part of the path may not be a link. Raises :class:`NotRegularError` for what is no
    regular file, :class:`TooLargeError` for a file of more than ``limit_bytes``, and :class:`OSError` for what cannot
    be opened, a name with a NUL character included.
    """
    if not (follow or NO_LINK) and path.is_symlink():
        raise _is_a_link(path)
    flags = os.O_RDONLY | UNSHARED | _flag("O_NOCTTY") | (0 if follow else NO_LINK)
    descriptor = open_descriptor(path, flags)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise NotRegularError(errno.EINVAL, "it is not a regular file", str(path))
    if limit_bytes is not None and status.st_size > limit_bytes:
        os.close(descriptor)
        raise TooLargeError(path, status.st_size, limit_bytes)
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, limit_bytes: int, *, follow: bool = True) -> bytes:
    """The whole file. Raises as :func:`open_regular` does, also for a file that grows while it is read."""
    with open_regular(path, limit_bytes, follow=follow) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise TooLargeError(path, len(data), limit_bytes)
    return data


def open_descriptor(path: Path, flags: int, mode: int = 0o600) -> int:
    """``os.open`` whose errors are all of :class:`OSError`.

    Raises :class:`NotRegularError` for a link where ``flags`` forbid to follow one.
    """
    try:
        return os.open(path, flags, mode)
    except ValueError as error:
        raise OSError(errno.EINVAL, "its name contains a NUL character", str(path)) from error
    except OSError as error:
        if error.errno == errno.ELOOP and flags & NO_LINK:
            raise _is_a_link(path) from error
        raise


def _is_a_link(path: Path) -> NotRegularError:
    return NotRegularError(errno.ELOOP, "it is a symbolic link", str(path))


def take_lock(descriptor: int, *, shared: bool = False) -> bool:
    """Whether this process now holds the lock of an open file; the kernel gives it back when the file is closed.

    True on a system that has no such locks. Raises :class:`OSError` where the file system has none.
    """
    try:
        import fcntl
    except ModuleNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_own(status: os.stat_result) -> bool:
    """Whether a file belongs to this user. True on a system that numbers no users."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def replace(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Write a new file next to ``path``, make sure that it is on the disk if ``durable``, and give it the name.

    ``mode`` is subject to the process's umask. A link of that name is replaced, not written through. Raises
    :class:`OSError`; then ``path`` is as it was.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = open_descriptor(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | UNSHARED, mode)
    try:
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except BaseException:  # raised again; whatever happened, no half a file stays
        beside.unlink(missing_ok=True)
        raise


def home_directory() -> Path | None:
    """This user's home directory; None where it is unknown."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, in as many calls as the system takes."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
