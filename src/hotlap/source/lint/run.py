"""Lint files: read, check, fix, and collect the results."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hotlap.source.lint.api import FixSafety, Related, Rule
from hotlap.source.lint.check import Hit, Unreadable, may_train, position
from hotlap.source.lint.configuration import Configuration
from hotlap.source.lint.documents import Document, Script, read_bounded, write_whole
from hotlap.source.lint.fix import Fixed, fix, grade, visible
from hotlap.source.lint.notebooks import Notebook
from hotlap.source.lint.project import Around, Parsed, Project
from hotlap.source.lint.records import (
    FileResult,
    LintFinding,
    LintNote,
    LintPlace,
    LintProblem,
    LintReport,
    LintRule,
)

_LONGEST_SOURCE_LINE = 120


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run. ``grades`` are the fixes to apply; with ``write`` files are changed, else only a diff is
    made."""

    rules: Sequence[Rule]
    configuration: Configuration = field(default_factory=Configuration)
    grades: frozenset[FixSafety] = frozenset()
    write: bool = False
    show_diff: bool = False


def lint_files(files: Sequence[Path], options: Options) -> LintReport:
    """Check files one after another; an unreadable file becomes a problem in the report."""
    project, parsed_files = Project(files), Parsed()
    around = (Around(it, project.around(it), parsed_files) for it in files)
    return report_of((lint_file(it, options, them) for it, them in zip(files, around, strict=True)), options.rules)


def lint_file(file: Path, options: Options, around: Around | None = None) -> FileResult:
    """Check one file, and fix it if requested; ``around`` are the files of its project."""
    name = str(file)
    ignored = options.configuration.ignored_in(file)
    rules = [it for it in options.rules if it.code not in ignored]
    try:
        source = read_bounded(file)
        result, content = lint_source(name, source, rules, options, around)
        if content is not None and options.write:
            write_whole(file, content)
    except Unreadable as error:
        return FileResult(file=name, problems=(LintProblem(file=name, what=error.what, line=error.line),))
    return result


def lint_source(
    name: str, source: bytes, rules: Sequence[Rule], options: Options, around: Around | None = None
) -> tuple[FileResult, bytes | None]:
    """Check a file's content; also return the new content if fixes changed it.

    Raises :class:`Unreadable` if it is not Python or a notebook.
    """
    nothing = FileResult(file=name)
    if not may_train(source) and (around is None or around.is_empty):
        return nothing, None
    document: Document
    if name.endswith(".ipynb"):
        document = Notebook(source)
        if not document.is_python:
            return nothing, None
    else:
        document = Script(source)
    try:
        return _lint_document(name, document, source, rules, options, around)
    except Unreadable as error:
        if not may_train(source):
            return nothing, None
        cell, line = document.whereabouts(error.line) if error.line else (None, 0)
        return FileResult(file=name, problems=(LintProblem(file=name, what=error.what, line=line, cell=cell),)), None


def report_of(results: Iterable[FileResult], rules: Sequence[Rule]) -> LintReport:
    """Merge the results of all files."""
    files = list(results)
    counts: dict[str, int] = {}
    for file in files:
        for code, count in file.fixed:
            counts[code] = counts.get(code, 0) + count
    return LintReport(
        checked_files=len(files),
        findings=tuple(it for file in files for it in file.findings),
        problems=tuple(it for file in files for it in file.problems),
        fixed=tuple(sorted(counts.items())),
        fixed_files=sum(1 for it in files if it.fixed),
        diffs=tuple(it.diff for it in files if it.diff),
        suggestions=tuple(it.suggested for it in files if it.suggested),
        rules=tuple(rule_record(it) for it in rules),
    )


def rule_record(rule: Rule) -> LintRule:
    """The record of a rule for renderings."""
    return LintRule(
        code=rule.code,
        name=rule.name,
        title=rule.title,
        page=rule.page,
        group=rule.group,
        fix=rule.fix_safety,
        measured=rule.measured,
    )


def _lint_document(
    name: str,
    document: Document,
    source: bytes,
    rules: Sequence[Rule],
    options: Options,
    around: Around | None,
) -> tuple[FileResult, bytes | None]:
    hits: Sequence[Hit] = visible(document.text, rules, around)
    text, counts, suggested, content = document.text, {}, "", None
    problems: tuple[LintProblem, ...] = ()
    if any(grade(it.rule, it.violation) in options.grades for it in hits):
        try:
            fixed = fix(document.text, rules, options.grades, around)
            content, document, hits = _put_back(document, fixed)
            text, counts = fixed.text, fixed.counts
        except Unreadable as error:
            problems = (LintProblem(file=name, what=error.what),)
    if options.show_diff and any(grade(it.rule, it.violation) == "shown" for it in hits):
        suggested = _diff(name, text, fix(text, rules, {"shown"}, around).text)
    result = FileResult(
        file=name,
        findings=tuple(_finding(name, document, it) for it in hits),
        problems=problems,
        fixed=tuple(sorted(counts.items())),
        diff=_diff(name, source.decode(errors="replace"), content.decode(errors="replace")) if content else "",
        suggested=suggested,
    )
    return result, content


def _put_back(document: Document, fixed: Fixed) -> tuple[bytes | None, Document, Sequence[Hit]]:
    """The file's new content, and its new document."""
    if fixed.text == document.text:
        return None, document, fixed.hits
    content = document.rewritten(fixed.text)
    again: Document = Notebook(content) if isinstance(document, Notebook) else Script(content)
    return content, again, fixed.hits


def _finding(name: str, document: Document, hit: Hit) -> LintFinding:
    lines = document.text.splitlines()
    violation = hit.violation
    place = _place(violation.node, document, lines)
    at = getattr(violation.node, "lineno", 1) - 1
    return LintFinding(
        file=name,
        place=place,
        code=hit.rule.code,
        rule=hit.rule.name,
        message=violation.message,
        source=lines[at].rstrip()[:_LONGEST_SOURCE_LINE] if at < len(lines) else "",
        fix=grade(hit.rule, violation),
        notes=tuple(_note(it, document, lines) for it in violation.related),
    )


def _note(related: Related, document: Document, lines: Sequence[str]) -> LintNote:
    if not related.file:
        return LintNote(place=_place(related.node, document, lines), message=related.message)
    line, column = position(related.node)
    place = LintPlace(line=line, column=column + 1, end_line=line, end_column=column + 1)
    return LintNote(place=place, message=related.message, file=related.file)


def _place(node: ast.AST, document: Document, lines: Sequence[str]) -> LintPlace:
    line, column = position(node)
    end_line = getattr(node, "end_lineno", None) or line
    end_column = getattr(node, "end_col_offset", None) or column
    cell, shown = document.whereabouts(line)
    return LintPlace(
        line=shown,
        column=_characters(lines, line, column) + 1,
        end_line=document.whereabouts(end_line)[1],
        end_column=_characters(lines, end_line, end_column) + 1,
        cell=cell,
    )


def _characters(lines: Sequence[str], line: int, column: int) -> int:
    """Convert a column in bytes to characters."""
    if line > len(lines):
        return column
    text = lines[line - 1]
    return column if text.isascii() else len(text.encode()[:column].decode(errors="replace"))


def _diff(name: str, before: str, after: str) -> str:
    """A unified diff that ``patch -p1`` and ``git apply`` understand, a missing last line end included."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(it if it.endswith("\n") else f"{it}\n\\ No newline at end of file\n" for it in lines)
