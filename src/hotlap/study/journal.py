"""The append-only journal of a study: what was asked of the executor, and what it answered.

The search is a deterministic function of the executor's answers, so these are all that is stored of it:
:mod:`hotlap.experiment.journaled` replays them. Nothing of the search's own state is kept, hence nothing of it can be
stale.
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
    """An open study: locked for this process, its answers known, ready to take more.

    Use it as a context manager, or call :meth:`close`. ``answers`` maps a request's key and its ordinal (the
    requests of that key are counted from 0) to what was answered. ``workload`` is what is run, with the secrets that
    no file of the study holds.
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
        self._write(redacted_record(answer, self._secrets))
        self.answers[(answer.key, answer.ordinal)] = answer

    def save(self, study: Study) -> None:
        """Replace ``study.json`` as a whole: a reader sees the old one or the new one, never half of one.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        text = msgspec.json.format(msgspec.json.encode(redacted_record(study, self._secrets)))
        replace(self.directory / SUMMARY, text)
        if self._signer is not None:
            self._signer.sign(text)

    def attach(self, name: str, record: Record) -> None:
        """Keep a record in a file of that name next to the study, in place of what was there.

        Raises :class:`StudyError` when the disk is full or may not be written.
        """
        attach_to(self.directory, name, redacted_record(record, self._secrets))

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
        line = _line(entry)
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
    """Keep a record in a file of that name next to a study that nobody need hold for it, in place of what was there.

    Raises :class:`StudyError` when the disk is full or may not be written.
    """
    replace(directory / name, msgspec.json.encode(record))


def create_study(
    root: Path, workload: Workload, options: Record, *, hotlap_version: str = "", source: Source | None = None
) -> Journal:
    """Make a new study under ``root`` and lock it. ``source`` is the state of the user's source at this moment.

    Raises :class:`StudyError` when the folder cannot be written.
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
    except BaseException:  # goes on; whatever happened, the lock is not kept
        journal.close()
        raise
    return journal


def open_study(path: Path, *, approve: Approve | None = None, given: Workload | None = None) -> Journal:
    """Open a study to go on with it: its folder, a file in it, or the root (the latest study under it).

    ``approve`` is asked before anything in the folder changes but the lock, and raises where the study's command must
    not be run. ``given`` is that command with its secrets, which no study stores.

    A last line that was cut short is dropped; that trial will be measured again. A journal of an older format is
    written again in the present one, as a whole. Raises :class:`StudyError` when there is none, when another run holds
    it, when a newer hotlap wrote it, or when it is damaged, and :class:`UsageError` where secrets of the command are
    missing or ``given`` is another one.
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
    except BaseException:  # goes on; whatever happened, the lock is not kept
        os.close(held)
        raise


def _line(entry: Record) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def _new_directory(root: Path) -> Path:
    """A folder named by the time, to the millisecond; a name that is taken is waited out. Only its owner may enter it,
    nor the folders of studies above it that are made with it."""
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
