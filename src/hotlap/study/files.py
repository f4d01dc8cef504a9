"""A study's files: bounded reading, atomic replacement, locking, and errors that say what to do."""

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
    """Open the file for reading, without following a link.

    Raises :class:`StudyError` for anything but a regular file, for one larger than ``limit_bytes``, and for one that
    cannot be opened.
    """
    with explained(path):
        return files.open_regular(path, limit_bytes, follow=False)


def read_bounded(path: Path, limit_bytes: int) -> bytes:
    """Read the whole file. Raises :class:`StudyError` as :func:`open_study_file` does."""
    with explained(path):
        return files.read_bounded(path, limit_bytes, follow=False)


def replace(path: Path, text: bytes, *, durable: bool = True) -> None:
    """Replace a file of the study atomically; only its owner may read it.

    A file that is not ``durable`` may be empty after a power failure. Raises :class:`StudyError` and leaves the old
    file unchanged.
    """
    with explained(path.parent):
        files.replace(path, text, mode=PRIVATE_FILE, durable=durable)


def open_to_append(path: Path) -> int:
    """Open a file of the study for appending; create it if it is missing.

    Returns its descriptor. Raises :class:`StudyError`, also for a link and for anything but a regular file.
    """
    with explained(path):
        descriptor = files.open_descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NEVER_ELSEWHERE)
        return _regular(descriptor, path)


def cut(path: Path, length: int) -> None:
    """Truncate a file of the study to ``length`` bytes. Raises :class:`StudyError`."""
    with explained(path):
        descriptor = _regular(files.open_descriptor(path, os.O_WRONLY | _NEVER_ELSEWHERE), path)
        try:
            if os.fstat(descriptor).st_size != length:
                os.ftruncate(descriptor, length)
        finally:
            os.close(descriptor)


def make_folder(path: Path) -> None:
    """Create a folder of the study that only its owner may enter.

    An existing folder is kept. Raises :class:`StudyError`, also for a link: files of trials must not be written
    elsewhere.
    """
    with explained(path):
        path.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
        if path.is_symlink():
            raise files.NotRegularError(errno.ELOOP, "it is a symbolic link", str(path))


def make_private(directory: Path) -> None:
    """Make this user's world-readable study, as earlier versions made them, private.

    A study that only a group may read is left alone: its owner chose that. Raises :class:`StudyError`.
    """
    with explained(directory):
        status = directory.stat()
        if files.is_own(status) and status.st_mode & stat.S_IRWXO:
            directory.chmod(PRIVATE_FOLDER)


def lock(directory: Path) -> int:
    """Lock the study for this process; the kernel releases the lock when it ends.

    Raises :class:`StudyError` if another process holds it, and for a lock that is a link or not a regular file.
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
    except BaseException:  # re-raised: on any error the lock is released
        os.close(descriptor)
        raise
    return descriptor


def is_locked(directory: Path) -> bool:
    """Whether a run is active on the study."""
    try:
        descriptor = files.open_descriptor(directory / LOCK, os.O_RDONLY | _NEVER_ELSEWHERE)
    except OSError:
        return False
    try:
        return not files.take_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _regular(descriptor: int, path: Path) -> int:
    """Return the descriptor, or close it and raise :class:`OSError` unless it is a regular file."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise files.NotRegularError(errno.EINVAL, "it is not a regular file", str(path))


class explained:
    """Turn the operating system's errors about a study's files into :class:`StudyError`."""

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
                remedy="hotlap writes no such file: check where it comes from, or start a new study.",
            ) from error
        if error.errno in _NO_SPACE:
            raise StudyError(
                f"The disk that holds the study {self._path} is full.",
                remedy="Free space and continue with `hotlap tune --resume`; all finished trials are kept.",
            ) from error
        raise StudyError(
            f"The study {self._path} cannot be used: {error.strerror or error}.",
            remedy="Check that the folder exists and is writable, or name another one.",
        ) from error


def damaged(path: Path, how: str) -> StudyError:
    """Build the error for a file with unexpected contents."""
    return StudyError(
        f"The study file {path} is damaged: {how}.", remedy="Start a new study; the other files are unchanged."
    )
