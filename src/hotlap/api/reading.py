"""Read without running anything: traces, source code, earlier studies, and plans."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap import study
from hotlap.api.engine import STUDIES
from hotlap.records import Plan, Study

if TYPE_CHECKING:
    from hotlap.source.lint.records import LintReport
    from hotlap.traces.records import Breakdown


def trace(path: str | os.PathLike[str]) -> tuple[Breakdown, ...]:
    """Break down the time of a profiler's trace, or of each trace in a folder; needs no torch.

    Raises :class:`HotlapError` if one cannot be read.
    """
    from hotlap.traces.breakdown import analyse
    from hotlap.traces.files import trace_files
    from hotlap.traces.reader import read_trace

    return tuple(analyse(read_trace(it)) for it in trace_files(Path(path)))


def lint(
    *paths: str | os.PathLike[str], select: Iterable[str] = (), ignore: Iterable[str] = (), processes: int = 1
) -> LintReport:
    """Find what makes training slow or wrong in these files and folders; nothing is executed, imported or changed.

    ``select`` and ``ignore`` are codes or their beginnings, as in ``hotlap lint``; the project's ``pyproject.toml`` is
    respected. Raises :class:`HotlapError` for a path or a code that does not exist.
    """
    from hotlap.source.lint.configuration import chosen_rules, configuration_for
    from hotlap.source.lint.folders import files_of
    from hotlap.source.lint.pool import lint_many
    from hotlap.source.lint.run import Options as LintOptions

    configuration = configuration_for(Path.cwd())
    rules = chosen_rules(tuple(select) or configuration.select, (*configuration.ignore, *ignore))
    files = files_of([Path(it) for it in paths], configuration)
    return lint_many(files, LintOptions(rules=rules, configuration=configuration), processes=processes)


def load_study(path: str | os.PathLike[str] = STUDIES) -> Study:
    """Read a study: its folder, or the folder of all studies for the last one that has an answer.

    Raises :class:`HotlapError` when there is none or when it cannot be read.
    """
    return study.load_study(find_study(Path(path)).directory)


def find_study(path: Path, need: study.Need = "answer") -> study.Last:
    """The study at a path or, in a folder of studies, the last suitable one. Raises :class:`StudyError`."""
    if study.is_study(path):
        return study.Last(path)
    kinds = (study.LABS, study.PROFILES, study.INFERENCES, study.MEMORIES, study.WATCHES, study.SCALES)
    answered = kinds if need == "answer" else ()
    return study.last_study(path, need, also=[path / it for it in answered])


def apply(path: str | os.PathLike[str] = "hotlap.toml") -> Plan:
    """Switch on a plan's levers in this process; call it before anything of torch is used.

    Raises :class:`HotlapError` when the plan cannot be read or names what does not exist.
    """
    from hotlap.runtime.boot import apply_plan

    return apply_plan(path)
