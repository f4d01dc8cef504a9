"""The blocks that sections are built of, the same in every medium. All text in blocks is plain and already cleaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["good", "neutral", "bad"]


@dataclass(frozen=True, slots=True)
class Table:
    """``>`` before a heading aligns its column to the right; the first cell of a row names it.

    ``caption`` is shown on pages only.
    """

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One sentence or several."""

    text: str


@dataclass(frozen=True, slots=True)
class Note:
    """A dimmed paragraph: what the table above means, and its limits."""

    text: str


@dataclass(frozen=True, slots=True)
class Bullets:
    """Independent sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure with its name; ``before`` is its former value."""

    name: str
    value: str
    before: str = ""


Block: TypeAlias = Table | Paragraph | Note | Bullets
