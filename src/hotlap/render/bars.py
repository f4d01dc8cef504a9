"""Stacked horizontal bars of character cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a bar: how long it is, in which colour, and the character that stands for it
    where colours are missing (``plain`` where even block characters are)."""

    amount: float
    colour: str
    pattern: str
    plain: str


def cells(amounts: Sequence[float], full: float, width: int) -> list[int]:
    """How many of ``width`` cells each amount gets when ``full`` would fill them all.

    The cells add up to the rounded length of the whole bar, and no part is off by more than one.
    """
    if full <= 0 or width <= 0:
        return [0] * len(amounts)
    ends, reached = [0], 0.0
    for amount in amounts:
        reached += max(0.0, amount)
        ends.append(min(width, round(reached / full * width)))
    return [end - start for start, end in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A bar as long as its parts together, on a scale where ``full`` fills the whole width."""

    parts: tuple[Part, ...]
    full: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not console.no_color
        lengths = cells([part.amount for part in self.parts], self.full, options.max_width)
        for part, length in zip(self.parts, lengths, strict=True):
            if length:
                yield Segment(swatch(part, coloured, options.ascii_only) * length, Style.parse(part.colour))
        yield Segment(" " * (options.max_width - sum(lengths)))
        yield Segment.line()


@dataclass(frozen=True, slots=True)
class Swatch:
    """One cell that shows how a part is drawn, for legends."""

    part: Part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not console.no_color
        yield Segment(swatch(self.part, coloured, options.ascii_only), Style.parse(self.part.colour))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, 1)


def swatch(part: Part, coloured: bool, ascii_only: bool) -> str:
    """The character a part is drawn with."""
    return part.plain if ascii_only else "█" if coloured else part.pattern
