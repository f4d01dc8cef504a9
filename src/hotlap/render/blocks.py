"""What a section is built of, the same for every medium. All text in it is plain and already cleaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Tone: TypeAlias = Literal["good", "neutral", "bad"]


@dataclass(frozen=True, slots=True)
class Table:
    """``>`` before a heading aligns its column to the right. The first cell of a row names it."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure with its name; ``before`` is what it was."""

    name: str
    value: str
    before: str = ""
