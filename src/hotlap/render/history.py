"""All studies of a project: a table, and the speedups with their intervals on one scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.text import Text

from hotlap.history import Entry, History
from hotlap.records import Estimate
from hotlap.render import text
from hotlap.render.kinds.api import presenter_of
from hotlap.render.layout import Trimmed, paragraphs
from hotlap.render.presentable import presentable
from hotlap.render.ratio_plot import Plot, Span
from hotlap.render.trend import trend_pieces

_WIDEST = 120
_INDENT = 4
_HEAD = ("when", "by", "result", "numbers")
_SHORT_REVISION = 9
_NUMBERS = {
    "exact": "exact",
    "within": "no difference",
    "lost": "differ",
    "not-verified": "not verified",
    None: "",
}


def history_page(history: History) -> RenderableType:
    """The page of one project."""
    history = presentable(history)
    pieces: list[RenderableType] = [_table(history.entries)]
    spans = spans_of(history.entries)
    if spans:
        pieces += [Text(), Text("Speedup of each plan, with its interval", style="bold"), Plot(spans)]
    for it in history.trends:
        pieces += [Text(), *trend_pieces(it)]
    if history.unreadable:
        pieces += [Text(), Text("Not read", style="bold yellow")]
        pieces += paragraphs([text.sentence(it.problem) for it in history.unreadable])
    return Trimmed(Constrain(Group(*pieces), _WIDEST))


def when(entry: Entry) -> str:
    """``2026-01-31 14:25``, from a study's time."""
    return text.one_line(entry.started, limit=40).replace("T", " ")[:16]


def result(entry: Entry) -> str:
    """The result of the study in a few words; a ratio always with its interval."""
    if entry.status == "script-failed":
        return "the script failed"
    return presenter_of(entry.kind).result(entry)


def spans_of(entries: Sequence[Entry]) -> list[Span]:
    """All drawable speedups of plans."""
    return [
        Span(when(it), it.speedup, it.claimed)
        for it in entries
        if it.speedup is not None and presenter_of(it.kind).shows_gain and _can_be_drawn(it.speedup)
    ]


def _can_be_drawn(of: Estimate) -> bool:
    return 1e-3 < of.low <= of.value <= of.high < 1e3


# ---------------------------------------------------------------------------------------------
# Table
# ---------------------------------------------------------------------------------------------


def _table(entries: Sequence[Entry]) -> RenderableType:
    """One line for each study, and below it its command and conditions."""
    rows = [(when(it), it.sort, result(it), _NUMBERS[it.quality]) for it in entries]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    pieces: list[RenderableType] = [_line(_HEAD, widths, ("dim",) * len(_HEAD))]
    for it, row in zip(entries, rows, strict=True):
        green = "green" if it.claimed else ""
        pieces.append(_line(row, widths, ("", "", green, "red" if it.quality == "lost" else "")))
        pieces += paragraphs([text.command(it.workload)], _INDENT, style="")
        pieces += paragraphs(_details(it), _INDENT)
    return Group(*pieces)


def _line(cells: Sequence[str], widths: Sequence[int], styles: Sequence[str]) -> Text:
    line = Text()
    for cell, width, style in zip(cells, widths, styles, strict=True):
        line.append(cell.ljust(width), style=style).append("  ")
    return line


def _details(entry: Entry) -> Iterator[str]:
    """The levers, and below them the conditions of the result."""
    if entry.levers:
        yield text.one_line(", ".join(entry.levers))
    parts = [f"torch {text.one_line(entry.torch_version)}" if entry.torch_version else "", text.one_line(entry.machine)]
    if entry.source.git_revision:
        changed = " with changes" if entry.source.git_modified else ""
        parts.append(f"git {text.one_line(entry.source.git_revision)[:_SHORT_REVISION]}{changed}")
    if entry.status not in ("finished", "script-failed"):
        parts.append(entry.status.replace("-", " "))
    shown = ", ".join(filter(None, parts))
    if shown:
        yield shown
