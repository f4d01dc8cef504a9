"""A study on disk: an append-only journal, its lock, and how a search goes on where it was cut.

A study is a folder::

    .hotlap/20260131-142501-337/
        journal.jsonl   what was asked of the executor and what it answered, one JSON object a line
        study.json      the Study as it stands, replaced as a whole after every outcome
        profile.json    what findings were made of; the files it was read from may be gone by then
        lock            held while a run is at work; holds its process number
        runs/           what the trials left behind: output, redirected files, gradients

The search is a deterministic function of the executor's answers, so these are all that is stored of it:
:mod:`hotlap.tune.journaled` replays them. Nothing of the search's own state is kept, hence nothing of it can be stale.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias, TypeVar

import msgspec

from hotlap.errors import StudyError
from hotlap.records import Machine, Record, Run, Study, TurnSet, Workload

FORMAT = 1
JOURNAL = "journal.jsonl"
SUMMARY = "study.json"
LOCK = "lock"
RUNS = "runs"

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
OptionsType = TypeVar("OptionsType", bound=Record)
RecordType = TypeVar("RecordType", bound=Record)


class Header(Record, frozen=True, kw_only=True, tag="header"):
    """The journal's first line: all that is needed to start the same search again."""

    format_version: int
    identifier: str
    started: str
    hotlap_version: str = ""
    workload: Workload
    options: msgspec.Raw = msgspec.Raw(b"{}")


class MachineAnswer(Record, frozen=True, kw_only=True, tag="machine"):
    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Machine


class LaunchAnswer(Record, frozen=True, kw_only=True, tag="launch"):
    key: str
    ordinal: int
    elapsed_seconds: float
    answer: Run


class TurnAnswer(Record, frozen=True, kw_only=True, tag="turns"):
    key: str
    ordinal: int
    elapsed_seconds: float
    answer: TurnSet


Answer: TypeAlias = MachineAnswer | LaunchAnswer | TurnAnswer


class _Version(msgspec.Struct, frozen=True):
    """Only the format version, read before anything else is believed."""

    format_version: int


class Journal:
    """An open study: locked for this process, its answers known, ready to take more.

    Use it as a context manager, or call :meth:`close`. ``answers`` maps a request's key and its ordinal (the
    requests of that key are counted from 0) to what was answered.
    """

    def __init__(self, directory: Path, header: Header, answers: dict[tuple[str, int], Answer], lock: int) -> None:
        self.directory = directory
        self.header = header
        self.answers = answers
        self._lock = lock
        self._file = -1
        self._length = 0
        with _explained(directory):
            self._file = os.open(directory / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._length = os.fstat(self._file).st_size

    @property
    def identifier(self) -> str:
        return self.header.identifier

    @property
    def workload(self) -> Workload:
        return self.header.workload

    @property
    def runs(self) -> Path:
        """The folder for what trials leave behind; it exists."""
        return self.directory / RUNS

    def options(self, kind: type[OptionsType]) -> OptionsType:
        """The options this study was created with.

        Raises :class:`StudyError` when they are of another make.
        """
        try:
            return msgspec.json.decode(self.header.options, type=kind)
        except msgspec.MsgspecError as error:
            raise _damaged(self.directory / JOURNAL, f"its options do not read: {error}") from None

    def append(self, answer: Answer) -> None:
        """Add one answer; when this returns it is on the disk. A failed write leaves the journal as it was.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        self._write(answer)
        self.answers[(answer.key, answer.ordinal)] = answer

    def save(self, study: Study) -> None:
        """Replace ``study.json`` as a whole: a reader sees the old one or the new one, never half of one.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        with _explained(self.directory):
            _replace(self.directory / SUMMARY, msgspec.json.format(msgspec.json.encode(study)))

    def attach(self, name: str, record: Record) -> None:
        """Keep a record in a file of that name beside the study, in place of what was there.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        with _explained(self.directory):
            _replace(self.directory / name, msgspec.json.encode(record))

    def attachment(self, name: str, kind: type[RecordType]) -> RecordType | None:
        """What was attached under that name; None where nothing was, or where it cannot be read as ``kind``."""
        return attachment_of(self.directory, name, kind)

    def close(self) -> None:
        """Close the journal and give the lock back; closing twice does no harm."""
        for descriptor in (self._file, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, entry: Record) -> None:
        line = msgspec.json.encode(entry) + b"\n"
        whole = False
        with _explained(self.directory):
            try:
                _write_all(self._file, line)
                os.fsync(self._file)
                whole = True
            finally:
                if not whole:  # also on Ctrl-C: no half line may be followed by a whole one
                    os.ftruncate(self._file, self._length)
        self._length += len(line)


# ---------------------------------------------------------------------------------------------
# Making, opening and reading a study
# ---------------------------------------------------------------------------------------------


def create_study(root: Path, workload: Workload, options: Record, *, hotlap_version: str = "") -> Journal:
    """Make a new study under ``root`` and lock it.

    Raises :class:`StudyError` when the folder cannot be written.
    """
    with _explained(root):
        directory = _new_directory(root)
        (directory / RUNS).mkdir()
    lock = _lock(directory)
    header = Header(
        format_version=FORMAT,
        identifier=directory.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        hotlap_version=hotlap_version,
        workload=workload,
        options=msgspec.Raw(msgspec.json.encode(options)),
    )
    journal = Journal(directory, header, {}, lock)
    try:
        journal._write(header)
        journal.save(_study_of(directory, header))
    except BaseException:
        journal.close()
        raise
    return journal


def open_study(path: Path) -> Journal:
    """Open a study to go on with it: its folder, a file in it, or the root (the latest study under it).

    A last line that was cut short is dropped; that trial will be measured again.
    Raises :class:`StudyError` when there is none, when another run holds it, when a newer hotlap wrote it, or when it
    is damaged.
    """
    directory = _directory_of(path)
    lock = _lock(directory)
    try:
        header, answers, whole_bytes = _read_journal(directory / JOURNAL)
        with _explained(directory):
            os.truncate(directory / JOURNAL, whole_bytes)
            (directory / RUNS).mkdir(exist_ok=True)
        return Journal(directory, header, answers, lock)
    except BaseException:
        os.close(lock)
        raise


def load_study(path: Path) -> Study:
    """Read a study without touching it: its folder, its ``study.json``, or the root (the latest study under it).

    A study that says "running" while no run holds it was killed; it is given the status "interrupted".
    Raises :class:`StudyError` when there is none, when a newer hotlap wrote it, or when it is damaged.
    """
    if path.is_file() and path.name != JOURNAL:
        return _read_summary(path)
    directory = _directory_of(path)
    if (directory / SUMMARY).exists():
        study = _read_summary(directory / SUMMARY)
    else:
        header, _, _ = _read_journal(directory / JOURNAL)
        study = _study_of(directory, header)
    if study.status == "running" and not _is_locked(directory):
        goes_on = "`hotlap tune --resume` goes on with it"
        text = f"The run was killed; {goes_on if study.kind == 'search' else 'only what it had found is known'}."
        study = msgspec.structs.replace(study, status="interrupted", status_text=text)
    return msgspec.structs.replace(study, directory=str(directory))


def attachment_of(directory: Path, name: str, kind: type[RecordType]) -> RecordType | None:
    """What was attached to the study in that folder under that name; None where nothing was, or where it cannot be read
    as ``kind``."""
    try:
        return msgspec.json.decode((directory / name).read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def latest_study(root: Path) -> Path:
    """The folder of the newest study under ``root``.

    Raises :class:`StudyError` when there is none.
    """
    with _explained(root):
        found = [it for it in root.iterdir() if (it / JOURNAL).is_file()] if root.is_dir() else []
    if not found:
        raise StudyError(f"There is no study under {root}.", remedy="`hotlap tune train.py` makes one.")
    return max(found, key=lambda it: it.name)


def _study_of(directory: Path, header: Header) -> Study:
    return Study(
        identifier=header.identifier,
        hotlap_version=header.hotlap_version,
        started=header.started,
        workload=header.workload,
        directory=str(directory),
    )


def _directory_of(path: Path) -> Path:
    if path.is_file() and (path.parent / JOURNAL).is_file():
        return path.parent
    if (path / JOURNAL).is_file():
        return path
    return latest_study(path)


def _new_directory(root: Path) -> Path:
    """A folder named by the time, to the millisecond; a name that is taken is waited out."""
    root.mkdir(parents=True, exist_ok=True)
    while True:
        now = datetime.now(UTC)
        directory = root / f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}"
        try:
            directory.mkdir()
        except FileExistsError:
            time.sleep(0.001)
            continue
        return directory


def _read_summary(path: Path) -> Study:
    with _explained(path):
        text = path.read_bytes()
    _check_version(text, path)
    try:
        return msgspec.json.decode(text, type=Study)
    except msgspec.MsgspecError as error:
        raise _damaged(path, str(error)) from None


def _read_journal(path: Path) -> tuple[Header, dict[tuple[str, int], Answer], int]:
    """The header, the answers, and how many bytes of the file are whole lines."""
    with _explained(path):
        text = path.read_bytes()
    whole_bytes = text.rfind(b"\n") + 1
    lines = text[:whole_bytes].splitlines()
    if not lines:
        raise _damaged(path, "its first line is missing")
    _check_version(lines[0], path)
    try:
        header = msgspec.json.decode(lines[0], type=Header)
    except msgspec.MsgspecError as error:
        raise _damaged(path, f"line 1: {error}") from None
    answers: dict[tuple[str, int], Answer] = {}
    decoder = msgspec.json.Decoder(Answer)
    for number, line in enumerate(lines[1:], start=2):
        try:
            answer = decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            if number == len(lines):  # written in part although the newline was: the machine went down
                return header, answers, whole_bytes - len(line) - 1
            raise _damaged(path, f"line {number}: {error}") from None
        answers[(answer.key, answer.ordinal)] = answer
    return header, answers, whole_bytes


def _check_version(text: bytes, path: Path) -> None:
    try:
        version = msgspec.json.decode(text, type=_Version).format_version
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _damaged(path, str(error)) from None
    if version > FORMAT:
        raise StudyError(
            f"The study {path.parent} has format {version}; this hotlap reads formats up to {FORMAT}.",
            remedy="Use the newer hotlap that wrote it, or start a new study.",
        )


# ---------------------------------------------------------------------------------------------
# Files and locks
# ---------------------------------------------------------------------------------------------


def _lock(directory: Path) -> int:
    """Hold the study for this process; the kernel gives the lock back when the process ends, however it ends."""
    with _explained(directory):
        descriptor = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
        with _explained(directory):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_locked(directory: Path) -> bool:
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _write_all(descriptor: int, text: bytes) -> None:
    view = memoryview(text)
    while view:
        view = view[os.write(descriptor, view) :]


def _replace(path: Path, text: bytes) -> None:
    """Write a file beside ``path``, make sure that it is on the disk, and give it the name."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            _write_all(descriptor, text)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class _explained:
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


def _damaged(path: Path, how: str) -> StudyError:
    return StudyError(
        f"The study file {path} is damaged: {how}.", remedy="Start a new study; the other files are untouched."
    )
