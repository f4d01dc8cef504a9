"""A command's answer on one screen: what was found, how far it can be trusted, and what to type next.

A brief never has more than :data:`MOST_LINES` lines. Text is shortened at the end of a sentence where possible, which
three dots show; a command is shown whole or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hotlap.render import text
from hotlap.render.blocks import Tone
from hotlap.render.lines import Paper, cell_width, folded, styled

MOST_LINES = 23
"""A terminal of 24 lines shows them above the prompt."""

NO_BREAK = "\u00a0"
"""A blank between words that stay on one line."""

WIDEST = 100
_STYLES: dict[Tone, str] = {"good": "bold green", "neutral": "bold yellow", "bad": "bold red"}
_CUT = " ..."
_INDENT = 2
_GAP = 2
_LONGEST_OUTPUT_LINE = 400
_UNIT = re.compile(r"(?<=\d) (?=(?:%|us|ms|s|min|h|B|KiB|MiB|GiB|TiB)(?!\w))")
"""The blank between a number and its unit."""

_WORD = re.compile(r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+")


@dataclass(frozen=True, slots=True)
class Row:
    """A labelled paragraph.

    ``items`` are its sentences or, where it is a list, its entries, each on a line of its own and at most
    ``most_items`` of them. It takes ``most`` lines if there is space, and never fewer than ``least`` where it has that
    many.
    """

    label: str
    items: tuple[str, ...]
    is_list: bool = False
    most_items: int = 20
    most: int = 4
    least: int = 1
    style: str = ""


@dataclass(frozen=True, slots=True)
class Next:
    """A command to type, and its purpose in a few words."""

    command: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Brief:
    """The answer of a command.

    ``top`` is the first line, which names what was run; ``sentence`` is the answer, and ``details`` are further
    sentences on it; ``output`` holds the last words of a script, verbatim. The last command shows everything, so it is
    never left out.
    """

    top: str
    tone: Tone
    sentence: str
    details: tuple[str, ...] = ()
    output: str = ""
    rows: tuple[Row, ...] = ()
    commands: tuple[Next, ...] = ()


def brief_lines(brief: Brief, paper: Paper) -> list[str]:
    """The brief as lines for a terminal, none wider than it, and at most :data:`MOST_LINES` of them."""
    paper = paper._replace(width=min(paper.width, WIDEST))
    groups = _groups(brief, paper)
    _shorten(groups)
    lines: list[str] = []
    for group in groups:
        shown = [line for it in group for line in it.lines]
        lines += [*([""] if lines and shown else []), *shown]
    return lines


def brief_text(brief: Brief, paper: Paper) -> str:
    """The same as one text."""
    return "\n".join(brief_lines(brief, paper))


# ---------------------------------------------------------------------------------------------
# Blocks, which are shortened until all fit
# ---------------------------------------------------------------------------------------------


class _Block:
    """Some lines, which can be made fewer."""

    def __init__(self, most: int, least: int) -> None:
        self._least = least
        self._limit = most
        self._is_shortest = False
        self.lines: list[str] = []

    def draw(self) -> None:
        """Draw the lines within the limit."""
        self.lines = self._drawn(self._limit)

    def spare(self, *, at_any_cost: bool = False) -> int:
        """How many lines could be saved here; ``at_any_cost`` all but the first."""
        return 0 if self._is_shortest else max(0, len(self.lines) - (1 if at_any_cost else self._least))

    def shrink(self) -> None:
        """Take at least one line less, if that is possible."""
        before = len(self.lines)
        self._limit = before - 1
        self.draw()
        self._is_shortest = len(self.lines) >= before

    def _drawn(self, limit: int) -> list[str]:
        raise NotImplementedError


class _Paragraph(_Block):
    def __init__(self, row: Row, paper: Paper, indent: int) -> None:
        super().__init__(row.most, row.least)
        self._row, self._paper, self._indent = row, paper, indent
        self.draw()

    def _drawn(self, limit: int) -> list[str]:
        row, width = self._row, max(20, self._paper.width - self._indent)
        items = [_UNIT.sub(NO_BREAK, it) for it in row.items]
        if row.is_list:
            lines = _list_lines(items, width, limit, row.most_items)
        else:
            lines = _sentence_lines(items, width, limit)
        label = row.label.ljust(self._indent)
        shown = []
        for number, line in enumerate(it.replace(NO_BREAK, " ") for it in lines):
            head = styled(label, "bold", self._paper) if number == 0 else " " * self._indent
            shown.append(f"{head}{styled(line.rstrip(), row.style, self._paper)}".rstrip())
        return shown


class _Output(_Block):
    """The end of a script's output; what is cut is its beginning."""

    def __init__(self, output: str, paper: Paper) -> None:
        super().__init__(most=8, least=3)
        self._lines = [it[:_LONGEST_OUTPUT_LINE] for it in output.split("\n")] if output else []
        self._paper = paper
        self.draw()

    def _drawn(self, limit: int) -> list[str]:
        width = self._paper.width - _INDENT
        folded_lines = [piece for line in self._lines for piece in folded(line, width)]
        return [" " * _INDENT + it for it in folded_lines[max(0, len(folded_lines) - limit) :]]


class _Commands(_Block):
    """The commands below a heading; those that do not fit are left out, but for the last one."""

    def __init__(self, commands: Sequence[Next], paper: Paper) -> None:
        super().__init__(most=MOST_LINES, least=6)
        self._commands, self._paper = commands, paper
        self.draw()

    def _drawn(self, limit: int) -> list[str]:
        if not self._commands:
            return []
        width = self._paper.width - _INDENT
        whole = [(it, command_lines(it.command, width)) for it in self._commands]
        left = limit - 1 - len(whole[-1][1])
        shown = []
        for it, lines in whole[:-1]:
            if len(lines) <= left:
                shown.append((it, lines))
                left -= len(lines)
        heading = styled("Next", "bold", self._paper)
        return [heading, *(" " * _INDENT + it for it in self._placed([*shown, whole[-1]], width))]

    def _placed(self, commands: Sequence[tuple[Next, list[str]]], width: int) -> list[str]:
        """Purposes stand behind their commands as comments of the shell, in one column where that fits."""
        ends = [cell_width(lines[-1]) + _GAP for _, lines in commands]
        purposes = [f"# {it.purpose}" for it, _ in commands]
        lengths = [cell_width(it) for it in purposes]
        column = max((end for end, it in zip(ends, lengths, strict=True) if end + it <= width), default=0)
        placed: list[str] = []
        for (_, lines), end, purpose, length in zip(commands, ends, purposes, lengths, strict=True):
            placed += [styled(line, "cyan", self._paper) for line in lines]
            at = column if column >= end and column + length <= width else end
            if at + length <= width:
                placed[-1] += " " * (at - end + _GAP) + styled(purpose, "dim", self._paper)
        return placed


def _groups(brief: Brief, paper: Paper) -> list[list[_Block]]:
    """What is separated by empty lines."""
    indent = max((len(it.label) for it in brief.rows if it.items), default=0) + _GAP
    top = _Paragraph(Row("", (brief.top,), most=1, style="dim"), paper, 0)
    sentence = _Paragraph(Row("", (brief.sentence,), most=5, least=3, style=_STYLES[brief.tone]), paper, 0)
    answer: list[_Block] = [sentence]
    if brief.details:
        answer.append(_Details(brief.details, paper))
    rows = [_Paragraph(it, paper, indent) for it in brief.rows if it.items]
    commands = _Commands(brief.commands, paper)
    groups: list[list[_Block]] = [[top], answer, [_Output(brief.output, paper)], [*rows], [commands]]
    return [it for it in groups if any(block.lines for block in it)]


class _Details(_Paragraph):
    def __init__(self, details: Sequence[str], paper: Paper) -> None:
        super().__init__(Row("", tuple(details), most=6, least=2, style="dim"), paper, _INDENT)


def _shorten(groups: Sequence[Sequence[_Block]]) -> None:
    blocks = [it for group in groups for it in group]
    between = len(groups) - 1
    while sum(len(it.lines) for it in blocks) + between > MOST_LINES:
        longest = max(blocks, key=lambda it: (it.spare(), it.spare(at_any_cost=True)))
        if not longest.spare(at_any_cost=True):
            return
        longest.shrink()


# ---------------------------------------------------------------------------------------------
# Text
# ---------------------------------------------------------------------------------------------


def _sentence_lines(sentences: Sequence[str], width: int, limit: int) -> list[str]:
    """As many whole sentences as fit, or the beginning of the first one."""
    for count in range(len(sentences), 0, -1):
        said = " ".join(sentences[:count]) + (_CUT if count < len(sentences) else "")
        lines = list(folded(said, width))
        if len(lines) <= limit:
            return lines
    return _cut(list(folded(sentences[0], width)), width, limit)


def _list_lines(items: Sequence[str], width: int, limit: int, most_items: int) -> list[str]:
    """As many entries as fit, and how many more there are."""
    drawn = [list(folded(it, width)) for it in items]
    if len(items) <= most_items and sum(map(len, drawn)) <= limit:
        return [line for it in drawn for line in it]
    shown: list[str] = []
    for number, lines in enumerate(drawn):
        if number == most_items or len(shown) + len(lines) + 1 > limit:
            more = f"and {len(items) - number} more"
            if shown:
                return [*shown, more]
            if len(items) == 1 or limit < 2:
                return _cut(lines, width, limit)
            return [*_cut(lines, width, limit - 1), f"and {len(items) - 1} more"]
        shown += lines
    return shown


def _cut(lines: list[str], width: int, limit: int) -> list[str]:
    """The first lines, the last one shortened by words."""
    if len(lines) <= limit:
        return lines
    *kept, last = lines[: max(1, limit)]
    while cell_width(last) + len(_CUT) > width:
        last = last.rpartition(" ")[0] or last[:-1]
    return [*kept, last.rstrip() + _CUT]


def command_lines(command: str, width: int) -> list[str]:
    """A command in lines of at most so many cells, as a shell takes it: broken lines end with a backslash."""
    lines: list[str] = []
    line = ""
    for word in _WORD.findall(text.one_line(command, limit=4000)):
        joined = f"{line} {word}" if line else word
        if cell_width(joined) <= width - _GAP or not line:
            line = joined
            continue
        lines.append(f"{line} \\")
        line = f"  {word}"
    lines.append(line)
    return [piece for it in lines for piece in _pieces(it, width)]


def _pieces(line: str, width: int) -> Iterator[str]:
    """A line with a word that is too long for it is broken anywhere."""
    while cell_width(line) > width:
        end = len(line) - 1
        while cell_width(line[:end]) > width:
            end -= 1
        yield line[:end].rstrip()
        line = line[end:]
    yield line
