"""Read studies from anyone and in any known format: their contents are untrusted until checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from hotlap.errors import StudyError
from hotlap.records import Record, Study, Workload
from hotlap.redact import redacted, redacted_record, secrets_of
from hotlap.study import migrations
from hotlap.study.files import damaged, explained, is_locked, open_study_file, read_bounded
from hotlap.study.kinds import resumes, resuming_command
from hotlap.study.layout import (
    ATTACHMENT_LIMIT_BYTES,
    FORMAT,
    JOURNAL,
    JOURNAL_LIMIT_BYTES,
    LINE_LIMIT_BYTES,
    SUMMARY,
    SUMMARY_LIMIT_BYTES,
)
from hotlap.study.migrations import Part
from hotlap.study.records import Answer, Header
from hotlap.study.trust import Opening, completed, why_foreign

_T = TypeVar("_T")
RecordType = TypeVar("RecordType", bound=Record)

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
_NO_LONGER_FITS = (KeyError, TypeError, ValueError, AttributeError)


class _Version(msgspec.Struct, frozen=True):
    """Only the format version, read before anything else."""

    format_version: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class JournalContent:
    """The contents of a journal, in the present format.

    ``header_line`` is its first line, byte for byte; ``written_in`` is the format that it was written in;
    ``whole_bytes`` is the length of its complete lines.
    """

    header: Header
    header_line: bytes
    answers: dict[tuple[str, int], Answer]
    whole_bytes: int
    written_in: int


def load_study(path: Path) -> Study:
    """Read a study without changing it: its folder, ``study.json``, or the root.

    Under a root, the latest study is read. Secrets that an earlier version stored are redacted. A study with the status
    "running" that no run holds was killed; it gets the status "interrupted". Raises :class:`StudyError` if there is
    none, if a newer hotlap wrote it, or if it is damaged.
    """
    if path.is_file() and path.name != JOURNAL:
        return _read_summary(path)
    directory = directory_of(path)
    if (directory / SUMMARY).exists():
        study = _read_summary(directory / SUMMARY)
    else:
        study = study_of(directory, read_header(directory / JOURNAL))
    if study.status == "running" and not is_locked(directory):
        goes_on = f"`{resuming_command(study, directory)}` continues it"
        text = f"The run was killed; {goes_on if resumes(study) else 'only its results up to then are known'}."
        study = msgspec.structs.replace(study, status="interrupted", status_text=text)
    return msgspec.structs.replace(study, directory=str(directory))


def attachment_of(directory: Path, name: str, kind: type[RecordType]) -> RecordType | None:
    """Return the attachment of that name in that folder.

    None if it is missing or cannot be read as ``kind``.
    """
    try:
        text = read_bounded(directory / name, ATTACHMENT_LIMIT_BYTES)
        document = migrations.migrated("attachment", msgspec.json.decode(text, type=dict[str, Any]), 1)
        return msgspec.convert(document, type=kind)
    except (StudyError, *_UNREADABLE, *_NO_LONGER_FITS):
        return None


def studies_in(root: Path) -> list[Path]:
    """Return the folders of the studies directly in ``root``, the newest last.

    Empty if the folder does not exist. Raises :class:`StudyError` if it cannot be read.
    """
    with explained(root):
        found = [it for it in root.iterdir() if (it / JOURNAL).is_file()] if root.is_dir() else []
    return sorted(found, key=lambda it: it.name)


def latest_study(root: Path) -> Path:
    """Return the folder of the newest study under ``root``.

    Raises :class:`StudyError` if there is none.
    """
    found = studies_in(root)
    if not found:
        raise StudyError(f"There is no study under {root}.", remedy="`hotlap tune train.py` creates one.")
    return found[-1]


def directory_of(path: Path) -> Path:
    """Return the folder of the study that a path denotes. Raises :class:`StudyError` if there is none."""
    if path.is_file() and (path.parent / JOURNAL).is_file():
        return path.parent
    if (path / JOURNAL).is_file():
        return path
    return latest_study(path)


def study_of(directory: Path, header: Header) -> Study:
    """Build a study of which only the beginning is known."""
    return Study(
        identifier=header.identifier,
        hotlap_version=header.hotlap_version,
        started=header.started,
        workload=redacted(header.workload),
        source=header.source,
        directory=str(directory),
    )


# ---------------------------------------------------------------------------------------------
# The two files
# ---------------------------------------------------------------------------------------------


def read_journal(path: Path) -> JournalContent:
    """Read the header and all answers, line by line, without a truncated last line.

    Raises :class:`StudyError` if a newer hotlap wrote it or if it is damaged.
    """
    answers: dict[tuple[str, int], Answer] = {}
    with open_study_file(path, JOURNAL_LIMIT_BYTES) as file, explained(path):
        first = _whole_line(file.readline(LINE_LIMIT_BYTES), path, 1)
        header, written_in = _decoded_header(first, path)
        whole_bytes, number = len(first), 1
        doubt: StudyError | None = None
        while (line := file.readline(LINE_LIMIT_BYTES)).endswith(b"\n"):
            if doubt is not None:  # not the last line, so an interrupted write cannot explain it
                raise doubt
            number += 1
            try:
                answer: Answer = _decoded(line, Answer, "answer", written_in)
            except _UNREADABLE as error:
                doubt = damaged(path, f"line {number}: {error}")
                continue
            answers[(answer.key, answer.ordinal)] = answer
            whole_bytes += len(line)
        if len(line) == LINE_LIMIT_BYTES:
            raise damaged(path, f"line {number + 1} is longer than {LINE_LIMIT_BYTES} bytes")
    return JournalContent(
        header=header, header_line=first, answers=answers, whole_bytes=whole_bytes, written_in=written_in
    )


def read_header(path: Path) -> Header:
    """Read how a study began: the first line of its journal. Raises :class:`StudyError` if there is none."""
    return _header_and_line(path)[0]


def opening_of(path: Path, given: Workload | None = None, *, summary: bool = False) -> Opening:
    """Return the command that a study would run, and whether this user made it here.

    With ``summary``, ``study.json`` is verified too. ``given`` is the command again, if it holds secrets. Raises
    :class:`StudyError` as :func:`read_header` does, and the errors of :func:`hotlap.study.trust.completed`.
    """
    directory = directory_of(path)
    header, line = _header_and_line(directory / JOURNAL)
    doubt = why_foreign(directory, line, summary=summary)
    workload = completed(header.workload, given)
    return Opening(directory=str(directory), workload=workload, ours=not doubt, why_foreign=doubt)


def made_here(path: Path) -> bool:
    """Whether this user made the study here and its ``study.json`` is unchanged.

    Raises as :func:`read_header` does.
    """
    directory = directory_of(path)
    _, line = _header_and_line(directory / JOURNAL)
    return not why_foreign(directory, line, summary=True)


def _header_and_line(path: Path) -> tuple[Header, bytes]:
    with open_study_file(path, JOURNAL_LIMIT_BYTES) as file, explained(path):
        line = _whole_line(file.readline(LINE_LIMIT_BYTES), path, 1)
    return _decoded_header(line, path)[0], line


def _whole_line(line: bytes, path: Path, number: int) -> bytes:
    if not line.endswith(b"\n"):
        raise damaged(path, f"line {number} is missing or truncated")
    return line


def _decoded_header(line: bytes, path: Path) -> tuple[Header, int]:
    written_in = _version_of(line, path)
    try:
        header: Header = _decoded(line, Header, "header", written_in)
    except _UNREADABLE as error:
        raise damaged(path, f"line 1: {error}") from None
    _check_workload(header.workload, path)
    return header, written_in


def _read_summary(path: Path) -> Study:
    text = read_bounded(path, SUMMARY_LIMIT_BYTES)
    written_in = _version_of(text, path)
    try:
        found: Study = _decoded(text, Study, "summary", written_in)
    except _UNREADABLE as error:
        raise damaged(path, str(error)) from None
    _check_workload(found.workload, path)
    return redacted_record(found, secrets_of(found.workload))


def _check_workload(workload: Workload, path: Path) -> None:
    """Raise :class:`StudyError` for a command that no system can run."""
    words = (workload.python, *workload.interpreter_options, workload.target, *workload.arguments)
    if any("\0" in it for it in (workload.directory, *words)):
        raise damaged(path, "its command contains a NUL character")


# ---------------------------------------------------------------------------------------------
# Formats
# ---------------------------------------------------------------------------------------------


def _decoded(text: bytes, kind: type[_T] | Any, part: Part, written_in: int) -> _T:
    """Decode the record and bring it to the present format. Raises one of :data:`_UNREADABLE`."""
    if written_in < FORMAT:
        text = _in_present_format(text, part, written_in)
    record: _T = msgspec.json.decode(text, type=kind)
    return record


def _in_present_format(text: bytes, part: Part, written_in: int) -> bytes:
    document = msgspec.json.decode(text, type=dict[str, Any])
    try:
        present = migrations.migrated(part, document, written_in)
    except _NO_LONGER_FITS as error:
        raise msgspec.ValidationError(f"it does not match its format {written_in}: {error!r}") from None
    if part != "answer":
        present["format_version"] = FORMAT
    return msgspec.json.encode(present)


def _version_of(text: bytes, path: Path) -> int:
    """Return the format that a text declares. Raises :class:`StudyError` if it is newer than ours."""
    try:
        version = msgspec.json.decode(text, type=_Version).format_version
    except _UNREADABLE as error:
        raise damaged(path, str(error)) from None
    if version > FORMAT:
        raise StudyError(
            f"The study {path.parent} has format {version}; this hotlap reads formats up to {FORMAT}.",
            remedy="Use the newer hotlap that wrote it, or start a new study.",
        )
    return version
