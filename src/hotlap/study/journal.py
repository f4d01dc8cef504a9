"""The append-only journal of a study: each request to the executor, and its answer.

The search is a deterministic function of the executor's answers, so only these are stored:
:mod:`hotlap.experiment.journaled` replays them. The search's own state is not stored, so it cannot become stale.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from hotlap.files import write_all
from hotlap.records import Record, Source, Study, Workload
from hotlap.redact import redacted, redacted_record, secrets_of
from hotlap.study.files import (
    PRIVATE_FOLDER,
    cut,
    damaged,
    explained,
    lock,
    make_folder,
    make_private,
    open_to_append,
    replace,
)
from hotlap.study.layout import FOLDERS, FORMAT, JOURNAL, RUNS, SUMMARY
from hotlap.study.reading import RecordType, attachment_of, directory_of, read_journal, study_of
from hotlap.study.records import Answer, Header
from hotlap.study.trust import Approve, Opening, Signer, completed, why_foreign

OptionsType = TypeVar("OptionsType", bound=Record)


class Journal:
    """An open study: locked by this process, with its known answers, ready for more.

    Use it as a context manager, or call :meth:`close`. ``answers`` maps a request's key and ordinal (requests with the
    same key are counted from 0) to its answer. ``workload`` is the command to run, with the secrets that no file of the
    study contains.
    """

    def __init__(
        self,
        directory: Path,
        header: Header,
        answers: dict[tuple[str, int], Answer],
        lock: int,
        *,
        workload: Workload,
        signer: Signer | None = None,
    ) -> None:
        self.directory = directory
        self.workload = workload
        self._signer = signer
        self._secrets = secrets_of(workload, os.environ)
        self.header = header
        self.answers = answers
        self._lock = lock
        self._file = -1
        self._length = 0
        with explained(directory):
            self._file = open_to_append(directory / JOURNAL)
            self._length = os.fstat(self._file).st_size

    def options(self, kind: type[OptionsType]) -> OptionsType:
        """Return the options that this study was created with.

        Raises :class:`StudyError` if they are of another type.
        """
        try:
            return msgspec.json.decode(self.header.options, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise damaged(self.directory / JOURNAL, f"its options cannot be read: {error}") from None

    def append(self, answer: Answer) -> None:
        """Append one answer; it is on the disk when this returns.

        A failed write leaves the journal unchanged. Raises :class:`StudyError` if the disk is full or not writable.
        """
        self._write(redacted_record(answer, self._secrets))
        self.answers[(answer.key, answer.ordinal)] = answer

    def save(self, study: Study) -> None:
        """Replace ``study.json`` atomically: a reader never sees half of one.

        Raises :class:`StudyError` if the disk is full or not writable.
        """
        text = msgspec.json.format(msgspec.json.encode(redacted_record(study, self._secrets)))
        replace(self.directory / SUMMARY, text)
        if self._signer is not None:
            self._signer.sign(text)

    def attach(self, name: str, record: Record) -> None:
        """Store a record in a file of that name in the study's folder, replacing any old one.

        Raises :class:`StudyError` if the disk is full or not writable.
        """
        attach_to(self.directory, name, redacted_record(record, self._secrets))

    def attachment(self, name: str, kind: type[RecordType]) -> RecordType | None:
        """Return the attachment; None if it is missing or cannot be read as ``kind``."""
        return attachment_of(self.directory, name, kind)

    def close(self) -> None:
        """Close the journal and release the lock; closing twice is harmless."""
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
        line = _line(entry)
        whole = False
        with explained(self.directory):
            try:
                write_all(self._file, line)
                os.fsync(self._file)
                whole = True
            finally:
                if not whole:  # also on Ctrl-C: a partial line must not be followed by a complete one
                    os.ftruncate(self._file, self._length)
        self._length += len(line)


# ---------------------------------------------------------------------------------------------
# Creating a study, and opening one to resume it
# ---------------------------------------------------------------------------------------------


def attach_to(directory: Path, name: str, record: Record) -> None:
    """Store a record in a file of that name in a study's folder, without its lock.

    An old file is replaced. Raises :class:`StudyError` if the disk is full or not writable.
    """
    replace(directory / name, msgspec.json.encode(record))


def create_study(
    root: Path, workload: Workload, options: Record, *, hotlap_version: str = "", source: Source | None = None
) -> Journal:
    """Create a study under ``root`` and lock it.

    ``source`` is the present state of the user's source. Raises :class:`StudyError` if the folder is not writable.
    """
    with explained(root):
        directory = _new_directory(root)
    make_folder(directory / RUNS)
    held = lock(directory)
    header = Header(
        format_version=FORMAT,
        identifier=directory.name,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        hotlap_version=hotlap_version,
        workload=redacted(workload),
        source=source or Source(),
        options=msgspec.Raw(msgspec.json.encode(options)),
    )
    signer = Signer(directory, _line(header))
    journal = Journal(directory, header, {}, held, workload=workload, signer=signer)
    try:
        journal._write(header)
        journal.save(study_of(directory, header))
    except BaseException:  # re-raised: on any error the lock is released
        journal.close()
        raise
    return journal


def open_study(path: Path, *, approve: Approve | None = None, given: Workload | None = None) -> Journal:
    """Open a study to resume it: its folder, a file in it, or the root of studies.

    Under a root, the latest study is opened. ``approve`` is called before anything in the folder but the lock changes,
    and raises if the study's command must not be run. ``given`` is that command with its secrets, which no study
    stores.

    A truncated last line is dropped; its trial will be measured again. A journal of an older format is rewritten in the
    present one, atomically. Raises :class:`StudyError` if there is no study, if another run holds it, if a newer hotlap
    wrote it, or if it is damaged, and :class:`UsageError` if secrets of the command are missing or ``given`` is another
    command.
    """
    directory = directory_of(path)
    held = lock(directory)
    try:
        found = read_journal(directory / JOURNAL)
        doubt = why_foreign(directory, found.header_line)
        workload = completed(found.header.workload, given)
        if approve is not None:
            approve(Opening(directory=str(directory), workload=workload, ours=not doubt, why_foreign=doubt))
        make_private(directory)
        header_line = found.header_line
        if found.written_in < FORMAT:
            lines = [_line(it) for it in (found.header, *found.answers.values())]
            replace(directory / JOURNAL, b"".join(lines))
            header_line = lines[0]
        else:
            cut(directory / JOURNAL, found.whole_bytes)
        make_folder(directory / RUNS)
        signer = None if doubt else Signer(directory, header_line)
        return Journal(directory, found.header, found.answers, held, workload=workload, signer=signer)
    except BaseException:  # re-raised: on any error the lock is released
        os.close(held)
        raise


def _line(entry: Record) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def _new_directory(root: Path) -> Path:
    """Create a folder named by the time, to the millisecond; wait if the name is taken.

    Only its owner may enter it, or the folders above it that are created with it.
    """
    if root.name in FOLDERS:
        root.parent.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    root.mkdir(mode=PRIVATE_FOLDER, parents=True, exist_ok=True)
    while True:
        now = datetime.now(UTC)
        directory = root / f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03d}"
        try:
            directory.mkdir(mode=PRIVATE_FOLDER)
        except FileExistsError:
            time.sleep(0.001)
            continue
        return directory
