"""A study's files: reading no more than is sensible, replacing as a whole, locking, and errors a person can act on."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from hotlap import files
from hotlap.errors import StudyError
from hotlap.study.layout import LOCK

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600

_NEVER_ELSEWHERE = files.UNSHARED | files.NO_LINK
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def open_study_file(path: Path, limit_bytes: int) -> BinaryIO:
    """The file, opened for reading; a link is not followed.

    Raises :class:`StudyError` for what is no regular file, is larger than ``limit_bytes``, or cannot be opened.
    """
    with explained(path):
        return files.open_regular(path, limit_bytes, follow=False)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """The whole file. Raises :class:`StudyError` as :func:`open_study_file` does."""
    with explained(path):
        return files.read_bounded(path, limit_bytes, follow=False)


def replace(path: Path, text: bytes, *, durable: bool = True) -> None:
    """Give the study this file in place of what was there, as a whole; only its owner may read it. One that is not
    ``durable`` may be empty after a power failure.

    Raises :class:`StudyError`; then the old file is as it was.
    """
    with explained(path.parent):
        files.replace(path, text, mode=PRIVATE_FILE, durable=durable)


def open_to_append(path: Path) -> int:
    """The descriptor of a file of the study to write at its end; made where there is none.

    Raises :class:`StudyError`, also for a link and for what is no regular file.
    """
    with explained(path):
        descriptor = files.open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NEVER_ELSEWHERE)
        return _regular(descriptor, path)


def cut(path: Path, length: int) -> None:
    """Leave the first ``length`` bytes of a file of the study. Raises :class:`StudyError`."""
    with explained(path):
        descriptor = _regular(files.open_descriptor(path, os.O_WRONLY | _NEVER_ELSEWHERE), path)
        try:
            if os.fstat(descriptor).st_size != length:
                os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder of the study that only its owner may enter, where there is none.

    Raises :class:`StudyError`, also for a link: what trials leave behind must not go elsewhere.
    """
    with explained(path):
        path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        if path.is_symlink():
            raise files.NotRegularError(errno.ELOOP, "it is a symbolic link", str(path))


def make_private(directory: Path) -> None:
    """Close a study of this user that everybody may read, as earlier versions made them, to all others.

    One that only a group may read is left alone: somebody wanted that. Raises :class:`StudyError`.
    """
    with explained(directory):
        status = directory.stat()
        if files.is_own(status) and status.st_mode & stat.S_IRWXO:
            directory.chmod(PRIVATE_FOLDER)


def lock(directory: Path) -> int:
    """Hold the study for this process; the kernel gives the lock back when the process ends, however it ends.

    Raises :class:`StudyError` when another process holds it, and for a lock that is a link or no regular file.
    """
    path = directory / LOCK
    with explained(path):
        descriptor = _regular(files.open_descriptor(path, os.O_RDWR | os.O_CREAT | _NEVER_ELSEWHERE), path)
    if not files.take_lock(descriptor):
        holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(descriptor)
        raise StudyError(
            f"The study {directory} is in use by another run (process {holder}).",
            remedy="Wait for it to end or stop it, or start a new study.",
        )
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
        descriptor = files.open_descriptor(directory / LOCK, os.O_RDONLY | _NEVER_ELSEWHERE)
    except OSError:
        return False
    try:
        return not files.take_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: Path) -> int:
    """The descriptor. Raises :class:`OSError` and closes it where it is of no regular file."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise files.NotRegularError(errno.EINVAL, "it is not a regular file", str(path))


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
        if isinstance(error, files.NotRegularError):
            raise damaged(Path(error.filename), str(error.strerror)) from error
        if isinstance(error, files.TooLargeError):
            raise StudyError(
                f"The study file {error.filename} cannot be used: {error.strerror}.",
                remedy="hotlap does not write such a file: check where it comes from, or start a new study.",
            ) from error
        if error.errno in _NO_SPACE:
            raise StudyError(
                f"The disk that holds the study {self._path} is full.",
                remedy="Free space and continue with `hotlap tune --resume`; all finished trials are kept.",
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
