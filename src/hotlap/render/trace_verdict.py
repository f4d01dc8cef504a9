"""What a trace comes to, on the terminal: causes in the order of what they cost, each with evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from hotlap.diagnose.trace_verdict import TraceVerdict
from hotlap.records import Finding
from hotlap.render import text
from hotlap.render.lines import Paper, paragraph
from hotlap.render.presentable import shown

_SHOWN = 5
_OVERLAP = "Shares overlap where one cause lies behind another."
_NOTHING = "No cause of slowness is seen in this trace."
_TO_DO = ("\u2192", "->")
_LABELS = {"wrong-numbers": "wrong numbers", "risk": "risk", "hint": "hint"}


def verdict_lines(verdicts: Sequence[TraceVerdict], paper: Paper) -> list[str]:
    """The verdicts of the traces and, where ``path`` is empty, that of the ranks together."""
    return [line for it in verdicts for line in (*_verdict(it, paper, named=len(verdicts) > 1), "")]


def _verdict(verdict: TraceVerdict, paper: Paper, *, named: bool) -> Iterator[str]:
    of = "the ranks together" if not verdict.path else shown(text.one_line(PurePath(verdict.path).name))
    yield from paragraph(f"Main causes, and what to do ({of})" if named else "Main causes, and what to do", paper,
                         style="bold")  # fmt: skip
    if not verdict.findings:
        yield from paragraph(_NOTHING, paper, indent=2)
    for number, it in enumerate(verdict.findings[:_SHOWN], 1):
        yield from _finding(number, it, paper)
    rest = verdict.findings[_SHOWN:]
    if rest:
        names = text.listed(list(dict.fromkeys(it.rule for it in rest)))
        yield from paragraph(f"{len(rest)} more in `--json`: {names}.", paper, indent=2, style="dim")
    if sum(it.kind == "cost" for it in verdict.findings) > 1:
        yield from paragraph(_OVERLAP, paper, indent=2, style="dim")


def _finding(number: int, it: Finding, paper: Paper) -> Iterator[str]:
    label = text.cost(it.share) if it.kind == "cost" else _LABELS[it.kind]
    yield from paragraph(f"{number}. {shown(text.one_line(it.title))}", paper, indent=2, style="bold")
    site = f" at {shown(text.one_line(it.site.file))}:{it.site.line}" if it.site and it.site.file else ""
    yield from paragraph(f"{it.rule}: {label}{site}", paper, indent=5, style="dim")
    for line in it.evidence:
        yield from paragraph(shown(text.one_line(line)), paper, indent=5)
    if it.remedy:
        yield from paragraph(f"{_TO_DO[paper.ascii_only]} {text.one_line(it.remedy)}", paper, indent=5, style="green")
