"""Docstrings of lever and rule files, shown as pages."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from hotlap.render import text

_LONGEST_PAGE = 20_000


def docstring_page(page: str, title: str) -> Iterator[RenderableType]:
    """A docstring without its title: highlighted ``##`` headings, verbatim indented blocks, wrapped prose."""
    blocks = re.split(r"\n\s*\n", text.clean(inspect.cleandoc(page), limit=_LONGEST_PAGE))
    if blocks and blocks[0].strip().rstrip(".") == title.rstrip("."):
        del blocks[0]
    for block in blocks:
        lines = [line.rstrip() for line in block.split("\n")]
        yield Text()
        if lines[0].startswith("#"):
            yield Text(lines.pop(0).lstrip("# "), style="bold")
        if any(line.startswith((" ", "- ", "* ", "|")) for line in lines):
            yield from (Text(line, style="cyan" if line.startswith("    ") else "", overflow="fold") for line in lines)
        elif lines:
            yield Text(" ".join(lines))
