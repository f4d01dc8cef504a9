"""Open and replace files that others may have written, with protection from pipes, links and huge files.

Every error is an :class:`OSError` whose ``strerror`` completes "The file cannot be read: ...", so that callers can
phrase it. Everything works on every system; missing flags and locks are left out.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

MEBIBYTE = 2**20


def _flag(name: str) -> int:
    """A flag of ``os.open``; 0 if the system does not have it."""
    value: int = getattr(os, name, 0)
    return value


UNSHARED = _flag("O_CLOEXEC") | _flag("O_NONBLOCK") | _flag("O_BINARY")
"""Flags for every file that is opened here: not inherited by other programs, never blocking, binary."""

NO_LINK = _flag("O_NOFOLLOW")
"""The flag that refuses a link; 0 on a system without it."""


class NotRegularError(OSError):
    """The path is a folder, a pipe, a device, a socket, or a link that may not be followed."""


class TooLargeError(OSError):
    """The file is larger than the limit; ``size`` is its size in bytes."""

    def __init__(self, path: Path, size: int, limit_bytes: int) -> None:
        super().__init__(errno.EFBIG, f"it has {size} bytes; at most {limit_bytes} are read", str(path))
        self.size = size


def open_regular(path: Path, limit_bytes: int | None = None, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading. Pipes, which may block, and devices, which may be endless, are refused.

    With ``follow`` False the last part of the path may not be a link. Raises :class:`NotRegularError` for anything but
    a regular file, :class:`TooLargeError` for a file of more than ``limit_bytes``, and :class:`OSError` if it cannot be
    opened, also for a name with a NUL character.
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
    """Read the whole file. Raises as :func:`open_regular` does, also for a file that grows while it is read."""
    with open_regular(path, limit_bytes, follow=follow) as file:
        data = file.read(limit_bytes + 1)
    if len(data) > limit_bytes:
        raise TooLargeError(path, len(data), limit_bytes)
    return data


def open_descriptor(path: Path, flags: int, mode: int = 0o600) -> int:
    """Call ``os.open`` so that all its errors are :class:`OSError`.

    Raises :class:`NotRegularError` for a link if ``flags`` forbid following it.
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
    """Try to lock an open file; the kernel releases the lock when the file is closed.

    Returns True on a system without such locks. Raises :class:`OSError` if the file system has none.
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
    """Whether a file belongs to this user. True on a system without user numbers."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def replace(path: Path, data: bytes, *, mode: int = 0o666, durable: bool = True) -> None:
    """Replace ``path`` atomically by a new file; if ``durable``, flush it to disk first.

    ``mode`` is subject to the process's umask. A link is replaced, not followed. Raises :class:`OSError`; then ``path``
    is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    descriptor = open_descriptor(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | UNSHARED, mode)
    try:
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:  # propagates; no partial file may remain
        temporary.unlink(missing_ok=True)
        raise


def place_folder(made: Path, target: Path) -> None:
    """Copy the files of a folder to ``target``, which is there as a whole or not at all; replace an earlier one.

    Raises :class:`OSError`; then ``target`` is unchanged.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    earlier = temporary.with_suffix(".old")
    try:
        shutil.copytree(made, temporary)
        if target.exists():
            target.rename(earlier)
        temporary.rename(target)
    except BaseException:  # propagates; no partial folder may remain
        shutil.rmtree(temporary, ignore_errors=True)
        if earlier.exists():
            earlier.rename(target)
        raise
    shutil.rmtree(earlier, ignore_errors=True)


def home_directory() -> Path | None:
    """This user's home directory; None where it is unknown."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes, in as many calls as necessary."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
