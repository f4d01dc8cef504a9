"""Ratios with their intervals on one logarithmic scale, as lines of text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hotlap.records import Estimate
from hotlap.render import text


@dataclass(frozen=True, slots=True)
class Span:
    """A drawable ratio: its name, its ends, whether it is claimed, and the band around 1 that is noise, as a share.

    ``note`` follows the ratio.
    """

    name: str
    of: Estimate
    claimed: bool
    noise: float = 0.0
    note: str = ""


def scale_of(spans: Sequence[Span]) -> tuple[float, float]:
    """The smallest and the largest ratio of the scale, which always includes 1 and a margin."""
    low = min(*(it.of.low for it in spans), *(1 / (1 + it.noise) for it in spans))
    high = max(*(it.of.high for it in spans), *(1 + it.noise for it in spans))
    room = max(1.02, (high / low) ** 0.05)
    return low / room, high * room


def place(ratio: float, low: float, high: float) -> float:
    """The position of a ratio on a logarithmic scale: 0 at its lower end, 1 at its upper."""
    return math.log(ratio / low) / math.log(high / low)


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
    ratios = [f"{text.ratio(it.of.value)}{it.note}" for it in spans]
    drawn = max(10, width - names - max(map(len, ratios)) - 6)
    for span, ratio in zip(spans, ratios, strict=True):
        yield f"  {span.name:<{names}}  {_drawn(span, low, high, drawn, ascii_only)}  {ratio}", span.claimed
    yield f"  {'':<{names}}  {_ticks(low, high, drawn)}".rstrip(), False


def _drawn(span: Span, low: float, high: float, width: int, ascii_only: bool) -> str:
    left, line, right, dot, one, noise = "[-]o:." if ascii_only else "├─┤●┊░"
    of = span.of
    cells = [" "] * width
    if span.noise:
        begin, end = _cell(1 / (1 + span.noise), low, high, width), _cell(1 + span.noise, low, high, width)
        cells[begin : end + 1] = noise * (end - begin + 1)
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
