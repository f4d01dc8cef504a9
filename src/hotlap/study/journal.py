"""The append-only journal of a study: what was asked of the executor, and what it answered.

The search is a deterministic function of the executor's answers, so these are all that is stored of it:
:mod:`hotlap.tune.journaled` replays them. Nothing of the search's own state is kept, hence nothing of it can be stale.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from hotlap.records import Record, Source, Study, Workload
from hotlap.study.files import damaged, explained, lock, replace, write_all
from hotlap.study.layout import FORMAT, JOURNAL, RUNS, SUMMARY
from hotlap.study.reading import RecordType, attachment_of, directory_of, read_journal, study_of
from hotlap.study.records import Answer, Header

OptionsType = TypeVar("OptionsType", bound=Record)


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
        with explained(directory):
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
        except (msgspec.MsgspecError, RecursionError) as error:
            raise damaged(self.directory / JOURNAL, f"its options do not read: {error}") from None

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
        with explained(self.directory):
            replace(self.directory / SUMMARY, msgspec.json.format(msgspec.json.encode(study)))

    def attach(self, name: str, record: Record) -> None:
        """Keep a record in a file of that name beside the study, in place of what was there.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        attach_to(self.directory, name, record)

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
        with explained(self.directory):
            try:
                write_all(self._file, line)
                os.fsync(self._file)
                whole = True
            finally:
                if not whole:  # also on Ctrl-C: no half line may be followed by a whole one
                    os.ftruncate(self._file, self._length)
        self._length += len(line)


# ---------------------------------------------------------------------------------------------
# Making a study, and opening one to go on with it
# ---------------------------------------------------------------------------------------------


def attach_to(directory: Path, name: str, record: Record) -> None:
    """Keep a record in a file of that name beside a study that nobody need hold for it, in place of what was there.

    Raises :class:`StudyError` when the disk is full or may not be written.
    """
    with explained(directory):
        replace(directory / name, msgspec.json.encode(record))


def create_study(
    root: Path, workload: Workload, options: Record, *, hotlap_version: str = "", source: Source | None = None
) -> Journal:
    """Make a new study under ``root`` and lock it. ``source`` is the state of the user's source at this moment.

    Raises :class:`StudyError` when the folder cannot be written.
    """
    with explained(root):
        directory = _new_directory(root)
        (directory / RUNS).mkdir()
    held = lock(directory)
    header = Header(
        format_version=FORMAT,
        identifier=directory.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        hotlap_version=hotlap_version,
        workload=workload,
        source=source or Source(),
        options=msgspec.Raw(msgspec.json.encode(options)),
    )
    journal = Journal(directory, header, {}, held)
    try:
        journal._write(header)
        journal.save(study_of(directory, header))
    except BaseException:  # goes on; whatever happened, the lock is not kept
        journal.close()
        raise
    return journal


def open_study(path: Path) -> Journal:
    """Open a study to go on with it: its folder, a file in it, or the root (the latest study under it).

    A last line that was cut short is dropped; that trial will be measured again. A journal of an older format is
    written anew in the present one, as a whole. Raises :class:`StudyError` when there is none, when another run holds
    it, when a newer hotlap wrote it, or when it is damaged.
    """
    directory = directory_of(path)
    held = lock(directory)
    try:
        found = read_journal(directory / JOURNAL)
        with explained(directory):
            if found.written_in < FORMAT:
                lines = [msgspec.json.encode(it) for it in (found.header, *found.answers.values())]
                replace(directory / JOURNAL, b"".join(line + b"\n" for line in lines))
            else:
                os.truncate(directory / JOURNAL, found.whole_bytes)
            (directory / RUNS).mkdir(exist_ok=True)
        return Journal(directory, found.header, found.answers, held)
    except BaseException:  # goes on; whatever happened, the lock is not kept
        os.close(held)
        raise


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
