"""A study's files: reading no more than is sensible, replacing as a whole, locking, and errors a person can act on."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from hotlap.errors import StudyError
from hotlap.study.layout import LOCK

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_regular(path: Path, limit_bytes: int) -> BinaryIO:
    """The file, opened for reading. A pipe would block for ever and a device never end, so they are refused.

    Raises :class:`StudyError` for what is no regular file, is larger than ``limit_bytes``, or cannot be opened.
    """
    with explained(path):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        file = os.fdopen(descriptor, "rb")
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_size <= limit_bytes:
        return file
    file.close()
    if not stat.S_ISREG(status.st_mode):
        raise damaged(path, "it is no regular file")
    raise StudyError(
        f"The study file {path} has {status.st_size} bytes; at most {limit_bytes} are read.",
        remedy="hotlap writes no such file: look at where it comes from, or start a new study.",
    )


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The whole file. Raises :class:`StudyError` as :func:`open_regular` does."""
    with open_regular(path, limit_bytes) as file, explained(path):
        return file.read(limit_bytes)


def replace(path: Path, text: bytes) -> None:
    """Write a file beside ``path``, make sure that it is on the disk, and give it the name."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            write_all(descriptor, text)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except BaseException:  # goes on; whatever happened, no half a file stays
        beside.unlink(missing_ok=True)
        raise


def write_all(descriptor: int, text: bytes) -> None:
    """Write the whole text, in as many turns as the system takes."""
    view = memoryview(text)
    while view:
        view = view[os.write(descriptor, view) :]


def lock(directory: Path) -> int:
    """Hold the study for this process; the kernel gives the lock back when the process ends, however it ends."""
    with explained(directory):
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StudyError(
            f"The study {directory} is in use by another run (process {holder}).",
            remedy="Wait for it to end or stop it, or start a new study.",
        ) from None
    try:
        with explained(directory):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except BaseException:  # goes on; whatever happened, the lock is not kept
        os.close(descriptor)
        raise
    return descriptor


def is_locked(directory: Path) -> bool:
    """Whether a run is at work on the study."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


class explained:
    """Turns an operating system's error about a study's files into a :class:`StudyError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError):
            return
        if error.errno in _NO_SPACE:
            raise StudyError(
                f"The disk that holds the study {self._path} is full.",
                remedy="Make room and go on with `hotlap tune --resume`; all finished trials are kept.",
            ) from error
        raise StudyError(
            f"The study {self._path} cannot be used: {error.strerror or error}.",
            remedy="Check that the folder exists and may be written, or name another one.",
        ) from error


def damaged(path: Path, how: str) -> StudyError:
    """What to say of a file that holds something else than it should."""
    return StudyError(
        f"The study file {path} is damaged: {how}.", remedy="Start a new study; the other files are untouched."
    )
