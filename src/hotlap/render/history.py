"""All studies of a project: a table, and the speedups with their intervals on one scale."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.text import Text

from hotlap.history import Entry, History
from hotlap.records import Estimate
from hotlap.render import text
from hotlap.render.kinds.api import presenter_of
from hotlap.render.layout import Trimmed, paragraphs
from hotlap.render.presentable import presentable

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


@dataclass(frozen=True, slots=True)
class Span:
    """A drawable speedup: its name, its ends, and whether it is claimed."""

    name: str
    of: Estimate
    claimed: bool


def history_page(history: History) -> RenderableType:
    """The page of one project."""
    history = presentable(history)
    pieces: list[RenderableType] = [_table(history.entries)]
    spans = spans_of(history.entries)
    if spans:
        pieces += [Text(), Text("Speedup of each plan, with its interval", style="bold"), Plot(spans)]
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


def scale_of(spans: Sequence[Span]) -> tuple[float, float]:
    """The smallest and the largest ratio of the scale, which always includes 1 and a margin."""
    low, high = min(1.0, *(it.of.low for it in spans)), max(1.0, *(it.of.high for it in spans))
    room = max(1.02, (high / low) ** 0.05)
    return low / room, high * room


def place(ratio: float, low: float, high: float) -> float:
    """The position of a ratio on a logarithmic scale: 0 at its lower end, 1 at its upper."""
    return math.log(ratio / low) / math.log(high / low)


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


# ---------------------------------------------------------------------------------------------
# Plot
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plot:
    """One line for each speedup: an interval with its estimate, on a logarithmic scale with a mark at 1."""

    spans: Sequence[Span]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line, claimed in plot_lines(self.spans, options.max_width, ascii_only=options.ascii_only):
            yield Text(line, style="" if claimed else "dim", no_wrap=True, overflow="crop")


def plot_lines(spans: Sequence[Span], width: int, *, ascii_only: bool) -> Iterator[tuple[str, bool]]:
    """The lines of the plot, each with whether it is claimed; the last one is the scale."""
    low, high = scale_of(spans)
    names = max(len(it.name) for it in spans)
    ratios = [text.ratio(it.of.value) for it in spans]
    drawn = max(10, width - names - max(map(len, ratios)) - 6)
    for span, ratio in zip(spans, ratios, strict=True):
        yield f"  {span.name:<{names}}  {_drawn(span.of, low, high, drawn, ascii_only)}  {ratio}", span.claimed
    yield f"  {'':<{names}}  {_ticks(low, high, drawn)}".rstrip(), False


def _drawn(of: Estimate, low: float, high: float, width: int, ascii_only: bool) -> str:
    left, line, right, dot, one = "[-]o:" if ascii_only else "├─┤●┊"
    cells = [" "] * width
    cells[_cell(1.0, low, high, width)] = one
    first, last = _cell(of.low, low, high, width), _cell(of.high, low, high, width)
    cells[first : last + 1] = line * (last - first + 1)
    cells[first], cells[last] = left, right
    cells[_cell(of.value, low, high, width)] = dot
    return "".join(cells)


def _ticks(low: float, high: float, width: int) -> str:
    """The ends of the scale and 1, if they do not overlap."""
    cells = [" "] * width
    free = 0
    ends = (text.ratio(low), text.ratio(high))
    labels = ((0, ends[0]), (_cell(1.0, low, high, width) - 1, "1x"), (width - len(ends[1]), ends[1]))
    for start, label in labels:
        if start >= free and start + len(label) <= width:
            cells[start : start + len(label)] = label
            free = start + len(label) + 1
    return "".join(cells)


def _cell(ratio: float, low: float, high: float, width: int) -> int:
    return min(width - 1, max(0, round(place(ratio, low, high) * (width - 1))))
