"""The timeline of the last profiled steps, and the path of their trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotlap.render import text
from hotlap.render.html.charts.timeline import longest_table
from hotlap.render.html.parts import Figure, Heading, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 45
title = "Timeline"


@dataclass(frozen=True, slots=True)
class TraceFile:
    """The path of a trace, and how to view it."""

    path: str
    command: str


def page(material: Material) -> Section[PageBlock]:
    """The timeline, its longest events, and the trace."""
    flame = Figure("flame", heading=True)
    return Section(title, (flame, *_timeline(material), *_trace(material.study.trace_path)))


def _timeline(material: Material) -> Iterator[PageBlock]:
    if material.lanes is not None and material.lanes.lanes:
        yield Figure("timeline", heading=True)
        yield longest_table(material.lanes)


def _trace(path: str) -> Iterator[PageBlock]:
    if path:
        yield Heading("The whole trace")
        yield TraceFile(text.one_line(path, limit=1000), f"hotlap trace {text.shell_word(path)}")
