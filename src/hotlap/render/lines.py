"""Paragraphs, tables and bars as lines of text, for output that must appear at once.

rich does more, but importing it takes longer than reading a small trace. Foreign text must be cleaned before
(:mod:`hotlap.render.text`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import compress
from typing import NamedTuple, TypeAlias

from hotlap.render.parts import Part, cells, swatch

_CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36",
    "bold red": "1;31", "bold green": "1;32", "bold yellow": "1;33",
}  # fmt: skip
_BETWEEN_COLUMNS = "  "
_NARROWEST_FOLDED = 10
_NARROWEST_NAME = 20
_BELOW_NAME = 2
_WIDEST_CHARACTER = 2


class Paper(NamedTuple):
    """The properties of a terminal: characters per line, colours, and whether only ASCII."""

    width: int = 80
    colours: bool = False
    ascii_only: bool = False


class Styled(NamedTuple):
    """Text in a style; the style is one of those that :data:`_CODES` names, or none."""

    text: str
    style: str = ""


Cell: TypeAlias = str | Styled


def styled(text: str, style: str, paper: Paper) -> str:
    """Text as the terminal shows it in a style."""
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if style and text and paper.colours else text


def cell_width(text: str) -> int:
    """How many character cells a terminal needs for a text."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(it) else 2 if unicodedata.east_asian_width(it) in "WF" else 1 for it in text)


def folded(text: str, width: int) -> Iterator[str]:
    """A text in lines of at most so many cells, broken between words if possible, with its indentation."""
    indented = text.lstrip(" ")
    indent = text[: len(text) - len(indented)]
    if indent and len(indent) + _WIDEST_CHARACTER <= width:
        yield from (indent + it for it in folded(indented, width - len(indent)))
        return
    line = ""
    for word in text.split(" "):
        joined = f"{line} {word}" if line else word
        if cell_width(joined) <= width:
            line = joined
            continue
        if line:
            yield line
        *pieces, line = _cut(word, width)
        yield from pieces
    yield line


def paragraph(text: str, paper: Paper, *, indent: int = 0, style: str = "") -> Iterator[str]:
    """A text over as many lines as it needs."""
    for line in folded(text, max(1, paper.width - indent)):
        yield " " * indent + styled(line, style, paper)


def bar(parts: Sequence[Part], full: float, paper: Paper, *, indent: int = 0) -> str:
    """A stacked bar on a scale where ``full`` fills the rest of the line."""
    lengths = cells([it.amount for it in parts], full, paper.width - indent)
    drawn = [
        styled(swatch(part, paper.colours, paper.ascii_only) * length, part.colour, paper)
        for part, length in zip(parts, lengths, strict=True)
    ]
    return " " * indent + "".join(drawn)


class Table:
    """A table without lines.

    ``>`` before a column's name aligns it to the right; ``?`` before that omits it if all its cells are empty. Without
    names the table has no header. If it is too wide, columns that are aligned to the left are wrapped first; if that
    leaves too little of the first one, which names the row, or would break a word of it, it gets a line of its own.
    ``about`` is a remark above the table.
    """

    def __init__(self, *names: str, about: str = "") -> None:
        self.about = about
        self._optional = [it.startswith("?") for it in names]
        self._right = [it.removeprefix("?").startswith(">") for it in names]
        self._head = [Styled(it.removeprefix("?").removeprefix(">"), "dim") for it in names]
        self._rows: list[list[Styled]] = []

    def add(self, *row: Cell) -> None:
        """Add a row, which may be shorter than the others."""
        full = [*row, *[""] * (len(self._head) - len(row))]
        self._rows.append([Styled(it) if isinstance(it, str) else it for it in full])

    def lines(self, paper: Paper, *, indent: int = 2) -> Iterator[str]:
        """The table's lines, none longer than the paper is wide."""
        if self.about:
            yield from paragraph(self.about, paper, indent=indent, style="dim")
        has_head = any(it.text for it in self._head)
        kept = self._kept()
        right = list(compress(self._right, kept))
        rows = [list(compress(it, kept)) for it in ([self._head] if has_head else []) + self._rows]
        natural = [max(cell_width(it.text) for it in column) for column in zip(*rows, strict=True)]
        words = [max(_widest_word(it.text) for it in column) for column in zip(*rows, strict=True)]
        widths = self._fitted(natural, words, right, paper, indent)
        if len(widths) < 2 or right[0] or widths[0] >= min(natural[0], max(_NARROWEST_NAME, words[0])):
            for row in rows:
                yield from _row_lines(row, right, widths, paper, indent)
            return
        below = self._fitted(natural[1:], words[1:], right[1:], paper, indent + _BELOW_NAME)
        for row in rows:
            if row[0].text:
                yield from paragraph(row[0].text, paper, indent=indent, style=row[0].style)
            yield from _row_lines(row[1:], right[1:], below, paper, indent + _BELOW_NAME)

    def _kept(self) -> list[bool]:
        """The displayed columns."""
        filled = [any(row[index].text for row in self._rows) for index in range(len(self._head))]
        return [has or not optional for has, optional in zip(filled, self._optional, strict=True)]

    @staticmethod
    def _fitted(
        natural: Sequence[int], words: Sequence[int], right: Sequence[bool], paper: Paper, indent: int
    ) -> list[int]:
        """Widths for the columns: the widest are narrowed until all fit, those on the left of their cells first, and
        only as far as no word is broken; where that is not enough, further."""
        widths = list(natural)
        available = paper.width - indent - len(_BETWEEN_COLUMNS) * (len(widths) - 1)
        folding = [index for index, it in enumerate(right) if not it]
        whole = {index: max(_NARROWEST_FOLDED, words[index]) for index in folding}
        for narrowest in (whole, dict.fromkeys(folding, _NARROWEST_FOLDED), dict.fromkeys(range(len(widths)), 1)):
            while sum(widths) > available:
                wide = [index for index, least in narrowest.items() if widths[index] > least]
                if not wide:
                    break
                widths[max(wide, key=widths.__getitem__)] -= 1
        return widths


def _row_lines(
    row: Sequence[Styled], right: Sequence[bool], widths: Sequence[int], paper: Paper, indent: int
) -> Iterator[str]:
    columns = [list(folded(cell.text, width)) for cell, width in zip(row, widths, strict=True)]
    for index in range(max(map(len, columns))):
        shown = []
        for cell, pieces, width, aligned in zip(row, columns, widths, right, strict=True):
            piece = pieces[index] if index < len(pieces) else ""
            blanks = " " * (width - cell_width(piece))
            text = styled(piece, cell.style, paper)
            shown.append(blanks + text if aligned else text + blanks)
        yield (" " * indent + _BETWEEN_COLUMNS.join(shown)).rstrip(" ")


def _widest_word(text: str) -> int:
    return max(map(cell_width, text.split(" ")))


def _cut(word: str, width: int) -> list[str]:
    """A word in pieces of at most so many cells; the last one may be empty."""
    pieces, piece, filled = [], "", 0
    for character in word:
        needed = cell_width(character)
        if piece and filled + needed > width:
            pieces.append(piece)
            piece, filled = "", 0
        piece += character
        filled += needed
    return [*pieces, piece]
