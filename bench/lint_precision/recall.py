"""What was planted and is found: scripts with one known cause each, and scripts from which something was taken.

``projects`` are small projects of several files, as people write them: the line of each mistake is marked with the rule
that should see it, and a hit of such a rule in an unmarked line is a false alarm. ``tests/causes`` was written for the
findings of a run, by others than the rules' examples: the line of each cause is marked there. Causes that cannot be
seen without running (a slow transform, a data set that fits into memory) are left out. Then our own workloads and
examples with one thing changed by its text: a deliberate mistake, in loops that no rule's author had before them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.lint_precision.corpus import OURS, ROOT
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.check import Unreadable, check
from hotlap.source.lint.records import LintReport
from hotlap.source.lint.run import Options, lint_files

PROJECTS = Path(__file__).parent / "projects"
_MARK = re.compile(r"# planted: ([a-z, -]+)$")
_MARK_OF_RULE = re.compile(r"# planted: (HL\d{3})$")
_CAUSES = {
    "host-sync": "HL201",
    "logging-cost": "HL202",
    "anomaly-detection": "HL205",
    "memory-growth": "HL501",
    "empty-cache": "HL502",
    "worker-startup": "HL104",
    "no-workers": "HL101",
    "accelerator-in-dataset": "HL105",
    "blocking-copies": "HL102",
    "tensor-on-host": "HL603",
    "unfused-optimizer": "HL604",
}
"""The causes that a rule claims to see in the source, by the mark in ``tests/causes``."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One mistake: the rule that should see it, where it is, and whether it was seen. A ``marked`` one has a line, and
    counts as found at that line only."""

    code: str
    what: str
    file: str
    found: bool
    marked: bool


def planted() -> list[Planted]:
    """All of them, each looked for."""
    return [*_causes(), *_changes()]


def _codes_in(text: str) -> set[tuple[str, int]]:
    """The rules that find something in a text, with the lines. Raises :class:`Unreadable`."""
    _, hits = check(text, all_rules().values())
    return {(it.rule.code, getattr(it.violation.node, "lineno", 0)) for it in hits}


# -- projects of several files --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InProject:
    """One marked line of a project: the rule that should see it, and whether it does, in the project and in the file
    by itself."""

    code: str
    project: str
    file: str
    line: int
    found: bool
    found_alone: bool


@dataclass(frozen=True, slots=True)
class Projects:
    """All marked lines, how many files there are, and the hits in lines that are not marked."""

    files: int
    marked: tuple[InProject, ...]
    false_alarms: tuple[str, ...]


def projects() -> Projects:
    """What the rules that are marked anywhere find in each project, linted as a whole and file by file."""
    files = sorted(PROJECTS.rglob("*.py"))
    wanted = {place: code for file in files for place, code in _marked(file)}
    options = Options(rules=[all_rules()[it] for it in sorted(set(wanted.values()))])
    together: set[tuple[str, str, int]] = set()
    for folder in sorted(it for it in PROJECTS.iterdir() if it.is_dir()):
        together |= _hits_of(lint_files(sorted(folder.rglob("*.py")), options))
    alone = {hit for file in files for hit in _hits_of(lint_files([file], options))}
    rows = [
        InProject(
            code,
            file.relative_to(PROJECTS).parts[0],
            _name(file),
            line,
            (code, str(file), line) in together,
            (code, str(file), line) in alone,
        )
        for (file, line), code in wanted.items()
    ]
    marked = {(code, str(file), line) for (file, line), code in wanted.items()}
    unmarked = sorted((_name(Path(file)), line, code) for code, file, line in together - marked)
    return Projects(len(files), tuple(rows), tuple(f"{code} {file}:{line}" for file, line, code in unmarked))


def _marked(file: Path) -> Iterator[tuple[tuple[Path, int], str]]:
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
        found = _MARK_OF_RULE.search(line)
        if found:
            yield (file, number), found.group(1)


def _hits_of(report: LintReport) -> set[tuple[str, str, int]]:
    return {(it.code, it.file, it.place.line) for it in report.findings}


# -- marked causes --------------------------------------------------------------------------------


def _causes() -> Iterator[Planted]:
    for file in sorted((ROOT / "tests" / "causes").glob("*.py")):
        text = file.read_text(encoding="utf-8")
        found: set[tuple[str, int]] | None = None
        for number, line in enumerate(text.splitlines(), start=1):
            marked = _MARK.search(line)
            for cause in marked.group(1).split(", ") if marked else ():
                code = _CAUSES.get(cause)
                if code is not None and code in all_rules():
                    found = _codes_in(text) if found is None else found
                    yield Planted(code, cause, _name(file), (code, number) in found, marked=True)


# -- changed scripts ------------------------------------------------------------------------------

Change = Callable[[str], str]


def _without(pattern: str, instead: str = "") -> Change:
    return lambda text: re.sub(pattern, instead, text, flags=re.MULTILINE)


def _after(pattern: str, added: str) -> Change:
    """Put a line behind each line that matches, as deeply indented."""
    return lambda text: re.sub(rf"^([ \t]*){pattern}$", rf"\g<0>\n\g<1>{added}", text, flags=re.MULTILINE)


def _before(pattern: str, added: str) -> Change:
    return lambda text: re.sub(rf"^([ \t]*)({pattern})$", rf"\g<1>{added}\n\g<1>\g<2>", text, flags=re.MULTILINE)


_STEP = r"(?:self\.)?optimi[sz]er\.step\(\)"
_CHANGES: Sequence[tuple[str, str, Change]] = (
    ("HL351", "model.eval() taken out", _without(r"^([ \t]*)(?:\w+\.)*\w+\.eval\(\)$", r"\1pass")),
    ("HL353", "model.train() taken out of the loop", _without(r"^([ \t]*)(?:\w+\.)*\w+\.train\(\)$", r"\1pass")),
    ("HL352", "no_grad taken out", _without(r"with torch\.(?:no_grad|inference_mode)\(\):", "if True:")),
    ("HL352", "the no_grad decorator taken out", _without(r"^[ \t]*@torch\.(?:no_grad|inference_mode)\(\)\n")),
    ("HL302", "zero_grad taken out", _without(r"^([ \t]*)(?:self\.)?optimizer\.zero_grad\(.*\)$", r"\1pass")),
    ("HL301", "zero_grad behind backward", _after(r"(?:loss|total_loss)\.backward\(\)", "optimizer.zero_grad()")),
    ("HL602", "gradients set to zero", _without(r"optimizer\.zero_grad\(\)", "optimizer.zero_grad(set_to_none=False)")),
    ("HL502", "empty_cache behind every step", _after(_STEP, "torch.cuda.empty_cache()")),
    ("HL401", "compiled in every step", _before(_STEP, "compiled = torch.compile(model)")),
)


def _changes() -> Iterator[Planted]:
    """Each change where it changes something, and where the rule was silent before."""
    for file in sorted(file for folder in OURS for file in (ROOT / folder).rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "torch" not in text:
            continue
        before = {code for code, _ in _codes_in(text)}
        for code, what, change in _CHANGES:
            changed = change(text)
            if changed != text and code in all_rules() and code not in before and _applies(code, text):
                try:
                    found = {it for it, _ in _codes_in(changed)}
                    yield Planted(code, what, _name(file), code in found, marked=False)
                except Unreadable:
                    continue


def _applies(code: str, text: str) -> bool:
    """Whether the change is a mistake in this script: modes and gradients matter where it evaluates at all, and zeros
    where it may train on an accelerator."""
    if code in ("HL351", "HL352", "HL353"):
        return ".eval()" in text and "backward" in text
    if code == "HL602":
        return "cuda" in text or "device" in text
    return True


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()
