"""Blocks that only pages have. All text in them is plain and already cleaned."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from hotlap.render.blocks import Fact, Table

Specification: TypeAlias = dict[str, Any]
"""A Vega-Lite specification, or a part of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing, with all its figures in a table for screen readers.

    ``name`` is its identifier in the page, ``description`` says in a sentence what it shows, ``legend`` what each
    colour (a CSS one) stands for; the page sets it, since text wraps better than a drawing. ``still`` is drawn in place
    of ``drawn`` where no script runs, for charts that would be too large; ``zooms`` says that it can be moved about in,
    along an axis of that ``unit``; its data named ``steps`` are where each ``stretch`` of it begins. ``searches`` says
    that its data named ``spans`` can be searched by name, which sets the parameter ``sought``.
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
    searches: bool = False
    unit: str = "ms"
    stretch: str = "step"


PageBlock: TypeAlias = object
"""A block of a page: any of :mod:`hotlap.render.blocks`, of those below, or of a section's own file. The macro of its
class's name in ``templates/blocks.html`` (``trace_file`` for ``TraceFile``) lays it out."""


@dataclass(frozen=True, slots=True)
class Lead:
    """The introduction of a section. A section without other blocks is left out."""

    text: str


@dataclass(frozen=True, slots=True)
class Heading:
    """A title within a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """The chart of that name, if there is one; ``heading`` shows its title."""

    name: str
    heading: bool = False


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names with their values."""

    of: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """A command or a path, with its purpose."""

    words: str
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Verbatim lines; ``name`` is for screen readers."""

    text: str
    name: str


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths, with a note on those left out."""

    paths: tuple[str, ...]
    more: str = ""
