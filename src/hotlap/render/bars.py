"""Stacked horizontal bars of character cells."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style

from hotlap.render.parts import Part as Part
from hotlap.render.parts import cells as cells
from hotlap.render.parts import swatch


@dataclass(frozen=True, slots=True)
class StackedBar:
    """A bar of these parts, on a scale where ``full`` fills the whole width."""

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
    """One cell that shows a part's style, for legends."""

    part: Part

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        coloured = console.color_system is not None and not console.no_color
        yield Segment(swatch(self.part, coloured, options.ascii_only), Style.parse(self.part.colour))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(1, 1)
