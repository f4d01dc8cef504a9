"""The findings of lint on the terminal: each with its line, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.render import text
from hotlap.render.lines import Paper, cell_width, paragraph, styled
from hotlap.source.lint.records import LintFinding, LintPlace, LintProblem, LintReport, LintRule

_LONGEST_CODE = 100


def lint_report(report: LintReport, paper: Paper) -> str:
    """All findings and problems in order, and a summary."""
    lines: list[str] = []
    for finding in report.findings:
        lines += [*_finding(finding, paper), ""]
    for problem in report.problems:
        lines += [*_problem(problem, paper), ""]
    return "\n".join([*lines, *_summary(report, paper)])


def diffs(report: LintReport) -> str:
    """The diff that would be written; edits that are only shown follow as comments, which ``patch`` skips."""
    pieces = [_harmless(it.rstrip("\n")) for it in report.diffs]
    for suggestion in report.suggestions:
        shown = _harmless(suggestion.rstrip("\n"))
        pieces += ["# Only shown, never written:", *(f"# {line}" for line in shown.split("\n"))]
    return "\n".join(pieces)


def where(file: str, place: LintPlace) -> str:
    """``train.py:12:8``, or ``train.ipynb:cell 3:12:8``."""
    cell = f"cell {place.cell}:" if place.cell is not None else ""
    return f"{text.one_line(file)}:{cell}{place.line}:{place.column}"


def rule_lines(rules: Sequence[LintRule], paper: Paper) -> str:
    """Every rule in one line, under the heading of its group."""
    lines: list[str] = []
    width = max((len(it.name) for it in rules), default=0)
    for group in dict.fromkeys(it.group for it in rules):
        lines += [styled(group, "bold", paper)]
        for it in rules:
            if it.group == group:
                mark = {"safe": "fix", "unsafe": "fix (unsafe)", "shown": "fix (shown)", "none": ""}[it.fix]
                lines.append(f"  {it.code}  {it.name:<{width}}  {styled(mark, 'dim', paper)}".rstrip())
        lines.append("")
    return "\n".join([*lines, "hotlap rule CODE  shows the page of one"])


def _harmless(diff: str) -> str:
    """The diff for applying, with tabs; lines that could move the cursor are cleaned."""
    lines = (line if line.replace("\t", " ").isprintable() else text.clean(line) for line in diff.split("\n"))
    return "\n".join(lines)


def _finding(finding: LintFinding, paper: Paper) -> Iterator[str]:
    head = f"{styled(where(finding.file, finding.place), 'bold', paper)} {styled(finding.code, 'red', paper)}"
    note = {"safe": " (--fix)", "unsafe": " (--fix --unsafe-fixes)", "shown": " (--diff shows a fix)", "none": ""}
    yield f"{head} {text.one_line(finding.message)}{styled(note[finding.fix], 'dim', paper)}"
    yield from _code(finding, paper)
    for it in finding.notes:
        yield f"    {where(it.file or finding.file, it.place)}: {text.one_line(it.message)}"


def _code(finding: LintFinding, paper: Paper) -> Iterator[str]:
    """The line with the violation underlined."""
    source = text.clean(finding.source)[:_LONGEST_CODE]
    if not source.strip() or "\n" in source or source != finding.source[:_LONGEST_CODE]:
        if source.strip():
            yield f"    {source.strip()}"
        return
    stripped = source.lstrip()
    before = finding.place.column - 1 - (len(source) - len(stripped))
    ends_here = finding.place.end_line == finding.place.line
    until = finding.place.end_column - 1 if ends_here else len(source)
    marked = source[finding.place.column - 1 : until]
    yield f"    {stripped}"
    if before >= 0 and marked:
        blanks = " " * cell_width(stripped[:before])
        yield f"    {blanks}{styled('^' * cell_width(marked), 'red', paper)}"


def _problem(problem: LintProblem, paper: Paper) -> Iterator[str]:
    place = f":cell {problem.cell}" if problem.cell is not None else ""
    line = f":{problem.line}" if problem.line else ""
    shown = styled(f"{text.one_line(problem.file)}{place}{line}", "bold", paper)
    yield f"{shown} {styled('not checked', 'yellow', paper)} {text.one_line(problem.what)}"


def _summary(report: LintReport, paper: Paper) -> Iterator[str]:
    checked = text.count(report.checked_files, "file")
    sentences = [f"Nothing was found in {checked}."]
    if report.findings:
        files = len({it.file for it in report.findings})
        within = f" in {text.count(files, 'file')}" if files > 1 else ""
        sentences = [f"{text.count(len(report.findings), 'finding')}{within}; {checked} checked."]
    if report.fixed:
        total = sum(count for _, count in report.fixed)
        codes = text.listed([f"{code} {count}x" for code, count in report.fixed])
        fixed = f"{text.count(total, 'problem')} in {text.count(report.fixed_files, 'file')}"
        sentences.append(f"Fixed {fixed}: {codes}.")
    if report.problems:
        sentences.append(f"{text.count(len(report.problems), 'file')} could not be checked or fixed.")
    yield from paragraph(" ".join(sentences), paper)
    if report.findings:
        yield from paragraph(_what_to_do(report.findings), paper)


def _what_to_do(findings: Sequence[LintFinding]) -> str:
    safe = sum(it.fix == "safe" for it in findings)
    unsafe = sum(it.fix == "unsafe" for it in findings)
    said = [f"`hotlap rule {findings[0].code}` explains a rule."]
    if safe:
        said.append(f"--fix fixes {safe}" + (f", with --unsafe-fixes {safe + unsafe}." if unsafe else "."))
    elif unsafe:
        said.append(f"--fix --unsafe-fixes fixes {unsafe}.")
    return " ".join(said)
