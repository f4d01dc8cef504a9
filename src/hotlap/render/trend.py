"""The trend of a project's checks: each ratio with its interval and noise, and what they amount to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from hotlap.history import Trend, TrendPoint
from hotlap.render import text
from hotlap.render.layout import paragraphs
from hotlap.render.ratio_plot import Plot, Span

_MOST_ROWS = 20
_SHORT_COMMIT = 9
_LEVELS = "▁▂▃▄▅▆▇█"
_ASCII_LEVELS = "_.-=+*#@"


def trend_pieces(trend: Trend) -> Iterator[RenderableType]:
    """What one trend shows: its conditions, the way of its speed, and its last checks."""
    yield Text(f"Trend of checks against {text.one_line(trend.against, limit=80)}", style="bold")
    where = (f"torch {text.one_line(trend.torch_version)}" if trend.torch_version else "", text.one_line(trend.machine))
    yield from paragraphs([", ".join(filter(None, (text.command(trend.workload), *where)))])
    yield _Way(trend.points)
    shown = trend.points[-_MOST_ROWS:]
    yield Plot([_span(it) for it in shown])
    left_out = len(trend.points) - len(shown)
    notes = [f"{left_out} older checks are not listed; `hotlap history --json` has all."] if left_out else []
    notes.append("Shaded: the run-to-run noise of the other side in each check.")
    yield from paragraphs(notes)


def _span(point: TrendPoint) -> Span:
    commit = text.one_line(point.commit)[:_SHORT_COMMIT] or "no commit"
    when = text.one_line(point.started, limit=40).replace("T", " ")[:10]
    changed = "+" if point.modified and point.commit else ""
    return Span(
        name=f"{when} {commit}{changed}",
        of=point.speedup,
        claimed=point.verdict != "inconclusive",
        noise=min(point.noise_floor, 1.0),
        note=f" ({text.interval(point.speedup)}) {point.verdict}",
    )


@dataclass(frozen=True, slots=True)
class _Way:
    """One character for each check, by its speed since the first, and the last of these speeds."""

    points: Sequence[TrendPoint]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line = Text(f"  {sparkline(self.points, ascii_only=options.ascii_only)}  ")
        last = self.points[-1].since_first
        if last is None:
            line.append("speed since the first check: unknown, as the compared commits are not connected")
        else:
            line.append(f"speed since the first check: {text.ratio(last.value)} ({text.interval(last)})")
        yield line


def sparkline(points: Sequence[TrendPoint], *, ascii_only: bool) -> str:
    """The speeds since the first check on a logarithmic scale of eight levels; a blank where one is unknown.

    Where all lie within the noise of the checks they are on one level: noise is not drawn as a trend.
    """
    levels = _ASCII_LEVELS if ascii_only else _LEVELS
    known = [math.log(it.since_first.value) for it in points if it.since_first is not None]
    if not known:
        return " " * len(points)
    low, high = min(known), max(known)
    if high - low <= max(math.log1p(it.noise_floor) for it in points):
        middle = levels[len(levels) // 2]
        return "".join(" " if it.since_first is None else middle for it in points)
    return "".join(
        " "
        if it.since_first is None
        else levels[round((math.log(it.since_first.value) - low) / (high - low) * (len(levels) - 1))]
        for it in points
    )
