"""Tables as CSV files, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Sequence
from pathlib import Path

from hotlap.errors import StudyError, UsageError
from hotlap.export.tables import Cell, Table
from hotlap.files import read_bounded, replace
from hotlap.render.text import clean

_BEGINS_A_FORMULA = ("=", "+", "-", "@")
_LARGEST_BYTES = 2**20
_LONGEST_TEXT = 32_000
"""The most characters that a spreadsheet's cell holds."""


def write_csv(tables: Sequence[Table], folder: Path, *, force: bool = False) -> tuple[Path, ...]:
    """Write one file for each table and one that describes their columns, in UTF-8 with a header; return their paths.

    Tables of another study are replaced only with ``force``.

    Text that a spreadsheet would read as a formula is prefixed with an apostrophe (OWASP, *CSV Injection*): names
    come from scripts, and a study may come from anywhere. Raises :class:`StudyError` if the folder cannot be written,
    and :class:`UsageError` if it holds files of another study.
    """
    if not force:
        _refuse_others(tables, folder)
    meanings = [(table.name, name, meaning) for table in tables for name, meaning in table.columns]
    about = Table("columns", "", (("table", ""), ("column", ""), ("meaning", "")), tuple(meanings))
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for table in (*tables, about):
            path = folder / f"{table.name}.csv"
            replace(path, as_csv(table).encode("utf-8"), durable=False)
            written.append(path)
    except OSError as error:
        raise StudyError(
            f"The tables cannot be written to {folder}: {error.strerror or error}.",
            remedy="Name another folder with --out.",
        ) from error
    return tuple(written)


def _refuse_others(tables: Sequence[Table], folder: Path) -> None:
    """Raise :class:`UsageError` if tables of another study would be replaced."""
    paths = [folder / f"{it.name}.csv" for it in tables]
    if not any(it.exists() for it in paths):
        return
    whose = _study_in(paths[0])
    if whose != _shown(tables[0].rows[0][0]):
        of = f"the study {whose}" if whose else "another study"
        raise UsageError(
            f"{folder} holds the tables of {of}, which would be replaced.",
            remedy="Name another folder with --out, or give --force.",
        )


def _study_in(path: Path) -> str:
    """The identifier in the first table; empty if it cannot be read."""
    try:
        rows = list(csv.DictReader(io.StringIO(read_bounded(path, _LARGEST_BYTES).decode("utf-8"))))
    except (OSError, UnicodeDecodeError, csv.Error):
        return ""
    return rows[0].get("study") or "" if len(rows) == 1 else ""


def as_csv(table: Table) -> str:
    """A table's header and rows; a cell is empty for an unknown value, ``true`` or ``false`` for a Boolean."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([name for name, _ in table.columns])
    writer.writerows([_shown(cell) for cell in row] for row in table.rows)
    return text.getvalue()


def _shown(cell: Cell) -> str | int | float:
    if cell is None:
        return ""
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return _harmless(cell) if isinstance(cell, str) else cell


def _harmless(text: str) -> str:
    """Text without control characters that no spreadsheet evaluates; some treat full-width signs as signs."""
    shown = clean(text, limit=_LONGEST_TEXT)
    first = unicodedata.normalize("NFKC", shown.lstrip()[:1])
    return f"'{shown}" if first.startswith(_BEGINS_A_FORMULA) else shown
