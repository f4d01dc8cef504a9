"""The fenced code blocks of a Markdown page, and how each is tested."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"(?:^<!-- (?P<note>[^\n]*?) -->\n)?^(?P<fence>```+)(?P<language>[\w+-]*)[^\n]*\n(?P<text>.*?)^(?P=fence)$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Block:
    """One block with the directives in the comment above it.

    ``file`` is the name that it is saved under; ``executed`` is false where the comment says why not. ``needs`` are the
    packages that are installed first, out of the way; ``given_study`` is true if it needs an existing study.
    """

    page: Path
    line: int
    language: str
    text: str
    file: str = ""
    executed: bool = True
    needs: tuple[str, ...] = ()
    given_study: bool = False

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> Iterator[str]:
        """The lines of a console session that are typed."""
        for line in self.text.splitlines():
            if line.startswith("$ "):
                yield line.removeprefix("$ ")


def pages() -> list[Path]:
    """The pages that people read to learn what to type; the benchmarks' are written by programs."""
    found = [it for it in DOCS.rglob("*.md") if "benchmarks" not in it.parts]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(found)]


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(text):
        note = match["note"] or ""
        yield Block(
            page=page,
            line=text.count("\n", 0, match.start("fence")) + 1,
            language=match["language"],
            text=match["text"],
            file=note.removeprefix("file: ") if note.startswith("file: ") else "",
            executed=not note.startswith("not executed: "),
            needs=tuple(note.removeprefix("needs: ").split()) if note.startswith("needs: ") else (),
            given_study=note == "given: a study",
        )
