"""The results of linting, as frozen records."""

from __future__ import annotations

from hotlap.records import Record
from hotlap.source.lint.api import FixSafety


class LintPlace(Record, frozen=True, kw_only=True):
    """A place in a file. Lines, columns (in characters) and a notebook's ``cell`` count from 1; the end column is
    the one after the last character."""

    line: int
    column: int = 1
    end_line: int = 0
    end_column: int = 0
    cell: int | None = None


class LintNote(Record, frozen=True, kw_only=True):
    """Another place that explains a violation; ``file`` if it is in another file."""

    place: LintPlace
    message: str
    file: str = ""


class LintFinding(Record, frozen=True, kw_only=True):
    """One violation of a rule. ``fix`` is the safety of its fix; ``none`` if there is no fix."""

    file: str
    place: LintPlace
    code: str
    rule: str
    message: str
    source: str = ""
    fix: FixSafety = "none"
    notes: tuple[LintNote, ...] = ()


class LintProblem(Record, frozen=True, kw_only=True):
    """Why a file could not be checked or fixed."""

    file: str
    what: str
    line: int = 0
    cell: int | None = None


class LintRule(Record, frozen=True, kw_only=True):
    """A violated rule, for renderings that list rules."""

    code: str
    name: str
    title: str
    page: str
    group: str
    fix: FixSafety
    measured: str = ""


class FileResult(Record, frozen=True, kw_only=True):
    """The result for one file. ``diff`` is the unified diff of its fixes, ``suggested`` that of edits that are only
    displayed."""

    file: str
    findings: tuple[LintFinding, ...] = ()
    problems: tuple[LintProblem, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    diff: str = ""
    suggested: str = ""


class LintReport(Record, frozen=True, kw_only=True):
    """All files in order. ``fixed`` counts fixed violations by code; ``rules`` are those that were run."""

    checked_files: int
    findings: tuple[LintFinding, ...] = ()
    problems: tuple[LintProblem, ...] = ()
    fixed: tuple[tuple[str, int], ...] = ()
    fixed_files: int = 0
    diffs: tuple[str, ...] = ()
    suggestions: tuple[str, ...] = ()
    rules: tuple[LintRule, ...] = ()
