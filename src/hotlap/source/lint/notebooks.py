"""Convert Jupyter notebooks to one Python text, and that text back to cells.

Code cells are joined in order, each after a comment that marks its start. IPython syntax (``%magic``, ``!command``,
``name?``) is replaced by ``pass`` with a mark, and restored when a fixed text is put back. The way back replaces the
``source`` of changed cells within the file's own text, so that the order of keys, indentation, outputs and everything
else stay as they are.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hotlap.source.lint.check import Unreadable

_CELL = "# hotlap: cell "
_MAGIC = "hotlap: magic "
_CELL_LINE = re.compile(rf"^{re.escape(_CELL)}(\d+)$", re.MULTILINE)
_MAGIC_MARK = re.compile(rf"(?:pass|None)  # {re.escape(_MAGIC)}(\d+)$", re.MULTILINE)
# Cell magics that are followed by Python; other cell magics are followed by other languages.
_PYTHON_CELL_MAGICS = frozenset({"time", "timeit", "capture", "prun", "memit", "mprun", "python", "python3"})
_MAGIC_LINE = re.compile(r"^(?P<indent>\s*)(?P<magic>(?:[%!?]|\?\?).*|[\w.\[\]'\"]+\?{1,2})\s*$")
_MAGIC_VALUE = re.compile(r"^(?P<before>\s*[\w.,\s]+=\s*)(?P<magic>[%!][A-Za-z./~$(].*)$")
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True)
class _Cell:
    """One code cell: its number among all cells, from 1, its source, and its place in the file's text."""

    number: int
    source: str
    start: int
    end: int


class Notebook:
    """Parse a notebook of format 4. Raises :class:`Unreadable` if it is not one."""

    def __init__(self, source: bytes) -> None:
        try:
            self._raw = source.decode("utf-8-sig")
            content = json.loads(self._raw)
        except (ValueError, RecursionError) as error:
            raise Unreadable(f"It is not a notebook, which is JSON: {_short(error)}.") from None
        if not isinstance(content, dict) or not isinstance(content.get("cells"), list):
            raise Unreadable("It is not a notebook of format 4: it has no list of cells.")
        self.is_python = _language(content) in ("", "python", "ipython")
        self._mark = source.startswith(b"\xef\xbb\xbf")
        self._magics: list[str] = []
        self._cells = list(_code_cells(self._raw, content["cells"])) if self.is_python else []
        self._starts: list[tuple[int, int]] = []
        self.text = self._composed()

    def whereabouts(self, line: int) -> tuple[int | None, int]:
        """The cell's number among all cells and the line within the cell, both from 1."""
        number, start = next((it for it in reversed(self._starts) if it[1] <= line), (1, line))
        return number, max(1, line - start)

    def rewritten(self, text: str) -> bytes:
        """The file with another text. Raises :class:`Unreadable` if its cells can no longer be separated."""
        sources = self._taken_apart(text)
        raw, shift = self._raw, 0
        for cell, new in zip(self._cells, sources, strict=True):
            if new == cell.source:
                continue
            start, end = cell.start + shift, cell.end + shift
            written = _as_json(new, raw[start:end])
            raw = raw[:start] + written + raw[end:]
            shift += len(written) - (end - start)
        return (b"\xef\xbb\xbf" if self._mark else b"") + raw.encode()

    def _composed(self) -> str:
        lines: list[str] = []
        for cell in self._cells:
            lines.append(f"{_CELL}{cell.number}")
            self._starts.append((cell.number, len(lines)))
            lines += self._neutralised(cell.source)
        return "\n".join(lines) + "\n" if lines else ""

    def _neutralised(self, source: str) -> list[str]:
        """Replace IPython syntax in the lines of a cell, keeping their number."""
        lines = source.split("\n")
        if _parses(source):
            return lines
        first = next((it for it, line in enumerate(lines) if line.strip()), 0)
        if lines[first].startswith("%%"):
            name = lines[first][2:].split()[:1]
            if not name or name[0] not in _PYTHON_CELL_MAGICS:
                return [self._replaced("", it) if it.strip() else it for it in lines]
        return [self._line(it) for it in lines]

    def _line(self, line: str) -> str:
        magic = _MAGIC_LINE.match(line)
        if magic:
            return self._replaced(magic["indent"], line)
        value = _MAGIC_VALUE.match(line)
        if value:
            self._magics.append(value["magic"])
            return f"{value['before']}None  # {_MAGIC}{len(self._magics) - 1}"
        return line

    def _replaced(self, indent: str, line: str) -> str:
        self._magics.append(line[len(indent) :])
        return f"{indent}pass  # {_MAGIC}{len(self._magics) - 1}"

    def _taken_apart(self, text: str) -> list[str]:
        marks = list(_CELL_LINE.finditer(text))
        if [int(it[1]) for it in marks] != [it.number for it in self._cells]:
            raise Unreadable("The fixed code cannot be put back into the notebook's cells.")
        ends = [it.start() for it in marks[1:]] + [len(text)]
        bodies = [text[mark.end() + 1 : end] for mark, end in zip(marks, ends, strict=True)]
        # Every cell's last line got a line end when the cells were put together.
        bodies = [it.removesuffix("\n") for it in bodies]
        if marks and marks[0].start():
            bodies[0] = text[: marks[0].start()] + bodies[0]
        restored = [_MAGIC_MARK.sub(lambda it: self._magics[int(it[1])], body) for body in bodies]
        if sum(len(_MAGIC_MARK.findall(it)) for it in bodies) != len(self._magics):
            raise Unreadable("The fixed code lost a command that only IPython understands.")
        return restored


def _code_cells(raw: str, cells: list[Any]) -> Iterator[_Cell]:
    for number, (cell, (start, end)) in enumerate(zip(cells, _sources(raw), strict=True), start=1):
        if isinstance(cell, dict) and cell.get("cell_type") == "code" and end > start:
            source = cell["source"]
            if isinstance(source, list) and all(isinstance(it, str) for it in source):
                source = "".join(source)
            if not isinstance(source, str):
                raise Unreadable(f"It is not a notebook of format 4: the source of cell {number} is no text.")
            yield _Cell(number, source.replace("\r\n", "\n"), start, end)


def _sources(raw: str) -> Iterator[tuple[int, int]]:
    """Find each cell's ``source`` in the text of valid JSON; an empty range for a cell without one."""
    for key, start, _ in _members(raw, 0):
        if key == "cells":
            for cell_start, _ in _elements(raw, start):
                if raw[cell_start] != "{":
                    yield 0, 0
                    continue
                found = [(it, end) for name, it, end in _members(raw, cell_start) if name == "source"]
                yield found[-1] if found else (0, 0)
            return


def _members(raw: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Each key, with the range of its value, of the object at a position of valid JSON."""
    decoder = json.JSONDecoder()
    at = _skip(raw, _skip(raw, start) + 1)
    while raw[at] != "}":
        key, at = decoder.raw_decode(raw, at)
        value_start = _skip(raw, _skip(raw, at) + 1)
        _, end = decoder.raw_decode(raw, value_start)
        yield key, value_start, end
        at = _skip(raw, end)
        at = _skip(raw, at + 1) if raw[at] == "," else at


def _elements(raw: str, start: int) -> Iterator[tuple[int, int]]:
    decoder = json.JSONDecoder()
    at = _skip(raw, start + 1)
    while raw[at] != "]":
        _, end = decoder.raw_decode(raw, at)
        yield at, end
        at = _skip(raw, end)
        at = _skip(raw, at + 1) if raw[at] == "," else at


def _skip(raw: str, at: int) -> int:
    """The next position that is not white space."""
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()


def _as_json(source: str, old: str) -> str:
    """A cell's new source as JSON, in the layout of the old one."""
    plain = "\\u" not in old
    if not old.startswith("["):
        return json.dumps(source, ensure_ascii=not plain)
    lines = [json.dumps(it, ensure_ascii=not plain) for it in source.splitlines(keepends=True)]
    before = _SPACE.match(old, 1)
    between = before[0] if before is not None else ""
    after = old[len(old.rstrip("]").rstrip()) : -1]
    separator = f",{between}" if between else ", "
    return f"[{between}{separator.join(lines)}{after}]"


def _language(content: dict[str, Any]) -> str:
    metadata = content.get("metadata")
    if not isinstance(metadata, dict):
        return ""
    for part, key in (("language_info", "name"), ("kernelspec", "language")):
        held = metadata.get(part)
        if isinstance(held, dict) and isinstance(held.get(key), str):
            return str(held[key]).lower()
    return ""


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".")[:200] or type(error).__name__
