"""A table for a terminal of any width that breaks no word.

Columns of text are narrowed first. Where that is not enough, the last columns of each row are written below it, with
their headings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from hotlap.render.lines import cell_width, folded

_GAP = 2
_BELOW = 2
_COMFORTABLE = 16
"""A column of text is not narrowed further, unless it is the only one."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """Rows of cells below headings; ``>`` before a heading aligns its column to the right. The last column, which tells
    most, is dimmed."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    indent: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(1, options.max_width - self.indent)
        for line in self._lines(width):
            yield Text(" " * self.indent).append_text(line)

    def _lines(self, width: int) -> Iterator[Text]:
        columns = self._columns()
        beside = len(columns)
        while beside > 1 and _sum(it.least for it in columns[:beside]) > width:
            beside -= 1
        widths = _narrowed(columns[:beside], width)
        last = len(columns) - 1
        if any(it.heading for it in columns[:beside]):
            yield from _row([it.heading for it in columns[:beside]], columns, widths, ["dim"] * beside)
        for row in self.rows:
            yield from _row(row[:beside], columns, widths, ["dim" if it == last else "" for it in range(beside)])
            yield from _below([it.heading for it in columns[beside:]], row[beside:], width)

    def _columns(self) -> list[_Column]:
        cells = (tuple(row[index] for row in self.rows) for index in range(len(self.headings)))
        return [_Column.of(heading, it) for heading, it in zip(self.headings, cells, strict=True)]

    def widths_within(self, width: int) -> list[int] | None:
        """The widths of all columns if they fit next to each other; None if they do not."""
        columns = self._columns()
        return _narrowed(columns, width) if _sum(it.least for it in columns) <= width else None


@dataclass(frozen=True, slots=True)
class _Column:
    """A column: its natural width, and the least one that it can have next to others."""

    heading: str
    is_right: bool
    natural: int
    least: int

    @classmethod
    def of(cls, heading: str, cells: Sequence[str]) -> _Column:
        is_right = heading.startswith(">")
        heading = heading.removeprefix(">")
        widest_cell = max(map(cell_width, cells), default=0)
        words = max((cell_width(word) for text in (heading, *cells) for word in text.split(" ")), default=0)
        natural = max(widest_cell, cell_width(heading))
        least = max(words, widest_cell if is_right else min(natural, _COMFORTABLE))
        return cls(heading, is_right, natural, least)


def _sum(widths: Iterator[int]) -> int:
    """The width of columns with the gaps between them."""
    return sum(it + _GAP for it in widths) - _GAP


def _narrowed(columns: Sequence[_Column], width: int) -> list[int]:
    """Widths with which the columns fit: the widest is narrowed until they do, none below its least."""
    widths = [it.natural for it in columns]
    while _sum(iter(widths)) > width:
        wide = [number for number, it in enumerate(columns) if widths[number] > it.least]
        if not wide:
            return [min(it, width) for it in widths]  # a single column with a word that is too long
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _row(
    cells: Sequence[str], columns: Sequence[_Column], widths: Sequence[int], styles: Sequence[str]
) -> Iterator[Text]:
    pieces = [list(folded(cell, width)) for cell, width in zip(cells, widths, strict=True)]
    for number in range(max(map(len, pieces), default=0)):
        line = Text(no_wrap=True)
        for lines, column, width, style in zip(pieces, columns, widths, styles, strict=False):
            piece = lines[number] if number < len(lines) else ""
            blanks = " " * (width - cell_width(piece))
            line.append(f"{blanks}{piece}" if column.is_right else f"{piece}{blanks}", style=style).append(" " * _GAP)
        line.rstrip()
        yield line


def _below(headings: Sequence[str], cells: Sequence[str], width: int) -> Iterator[Text]:
    """The cells below their row: a sentence speaks for itself, anything else follows its heading."""
    said = [
        cell if cell.endswith(".") or not heading else f"{heading}: {cell}"
        for heading, cell in zip(headings, cells, strict=True)
        if cell
    ]
    if said:
        for line in folded("; ".join(said), max(1, width - _BELOW)):
            yield Text(" " * _BELOW, no_wrap=True).append(line, style="dim")
