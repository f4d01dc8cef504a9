"""What only pages hold: charts. All text in them is plain and already cleaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from hotlap.render.blocks import Table

Specification: TypeAlias = dict[str, Any]
"""A Vega-Lite specification, or a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing, with all its figures in a table for those who cannot see it.

    ``name`` is its identifier in the page, ``description`` says in a sentence what it shows, ``legend`` what each
    colour (a CSS one) stands for; the page sets it, since text wraps better than a drawing. ``still`` is drawn in place
    of ``drawn`` where no script runs, for charts that would be too large; ``zooms`` says that it can be moved about in.
    """

    name: str
    title: str
    description: str
    drawn: Specification
    table: Table
    legend: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    still: Specification | None = None
    zooms: bool = False
