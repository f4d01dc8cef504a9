"""A study's steps as rows for a program: what ``steps.csv`` holds, as dictionaries."""

from __future__ import annotations

from hotlap.export.gather import gather
from hotlap.export.tables import Cell, steps_table
from hotlap.records import Study


def step_rows(study: Study) -> list[dict[str, Cell]]:
    """One dictionary for each step of the unmodified script and of the plan, all with the same keys.

    Raises :class:`hotlap.errors.StudyError` for a damaged journal.
    """
    table = steps_table(gather(study))
    names = [name for name, _ in table.columns]
    return [dict(zip(names, row, strict=True)) for row in table.rows]
