"""Helpers of several renderings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from hotlap.render.blocks import Table, Tone
from hotlap.render.fitted import Fitted

TONES: dict[Tone, str] = {"good": "bold green", "neutral": "bold yellow", "bad": "bold red"}
"""How an answer is printed."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A renderable without trailing blanks."""

    inner: RenderableType

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in console.render_lines(self.inner, options, pad=False):
            yield from _without_trailing_blanks(line)
            yield Segment.line()


def indented(line: str | Text, columns: int = 2, style: str = "") -> RenderableType:
    """An indented paragraph."""
    paragraph = Text(line, style=style, overflow="fold") if isinstance(line, str) else line
    return Padding(paragraph, (0, 0, 0, columns), expand=False)


def paragraphs(lines: Iterable[str], columns: int = 2, style: str = "dim") -> list[RenderableType]:
    """Several indented paragraphs in one style."""
    return [indented(line, columns, style) for line in lines]


def open_table(*columns: str) -> Grid:
    """A table without lines; ``>`` before a column's name aligns it to the right."""
    table = Grid(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    for name in columns:
        right = name.startswith(">")
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(Text(name.removeprefix(">")), justify=justify, no_wrap=right, overflow="fold")
    return table


def table_of(table: Table) -> RenderableType:
    """A table that every medium can show, as a terminal's; its last column is the one that tells most."""
    return Fitted(table.headings, table.rows)


def shifted(what: RenderableType) -> RenderableType:
    """A renderable indented by two columns."""
    return Padding(what, (0, 0, 0, 2), expand=True)


def _without_trailing_blanks(line: list[Segment]) -> list[Segment]:
    kept = [segment for segment in line if not segment.control]
    while kept:
        last = kept[-1]
        stripped = last.text.rstrip(" ")
        if stripped:
            return [*kept[:-1], Segment(stripped, last.style)]
        kept.pop()
    return []
