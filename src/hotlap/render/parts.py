"""The parts of a bar: the character cells and the character of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple


class Part(NamedTuple):
    """One part of a bar: its length, its colour, and its character without colours (``plain``: without Unicode)."""

    amount: float
    colour: str
    pattern: str
    plain: str


def cells(amounts: Sequence[float], full: float, width: int) -> list[int]:
    """How many of ``width`` cells each amount gets when ``full`` would fill them all.

    The cells add up to the rounded length of the whole bar, and no part is off by more than one.
    """
    if full <= 0 or width <= 0:
        return [0] * len(amounts)
    ends, reached = [0], 0.0
    for amount in amounts:
        reached += max(0.0, amount)
        ends.append(min(width, round(reached / full * width)))
    return [end - start for start, end in pairwise(ends)]


def swatch(part: Part, coloured: bool, ascii_only: bool) -> str:
    """The character of a part."""
    return part.plain if ascii_only else "█" if coloured else part.pattern
