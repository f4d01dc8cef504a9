"""The page: its contents, their order, and how it is built."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hotlap.errors import MissingPackageError
from hotlap.render import text
from hotlap.render.account import SHOWN_PHASES
from hotlap.render.blocks import Table
from hotlap.render.cost import cost_lines
from hotlap.render.headline import headline
from hotlap.render.html import first_screen
from hotlap.render.html.charts.api import charts_of
from hotlap.render.html.drawing import drawing_code, still_picture
from hotlap.render.html.embedding import code, embedded_json, policy
from hotlap.render.html.parts import Chart, Figure, Lead, PageBlock
from hotlap.render.kinds.api import presenter_of
from hotlap.render.material import Material
from hotlap.render.presentable import presentable
from hotlap.render.sections.api import Placed, Section, page_sections
from hotlap.traces.lanes import Lanes

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = "hotlap report"
"""The generator mark of a page; a file with this mark is a report, and may be replaced by a newer one."""

_TEMPLATES = Path(__file__).parent / "templates"
_CAPITAL = re.compile("[A-Z]")
_OTHER_CHARTS = 65
"""The order of charts that no section places: after all others."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart in a page: its specification as JSON for a script element, and a static SVG that is shown until the
    script draws it. ``heading`` shows its title."""

    chart: Chart
    drawn: str
    still: str
    heading: bool = False


class _Section(NamedTuple):
    """A section as the template lays it out: each block with the name of its macro."""

    name: str
    title: str
    blocks: tuple[tuple[str, PageBlock], ...]


def page(material: Material) -> str:
    """The whole page as text.

    Raises :class:`hotlap.errors.MissingPackageError` when the packages of the extra ``report`` are not installed.
    """
    environment = _environment()
    library, own_code = drawing_code(), _text_of("page.js")
    return environment.get_template("page.html").render(
        generator=GENERATOR,
        policy=policy(library, own_code),
        styles=f"{_text_of('page.css')}\n{_phase_colours()}",
        drawing_code=library,
        own_code=own_code,
        **_content(material),
    )


def _phase_colours() -> str:
    """The variables of the phases, from their table."""
    return f":root {{ {' '.join(f'{it.variable}: {it.on_page};' for it in SHOWN_PHASES)} }}\n"


def _content(material: Material) -> dict[str, Any]:
    material = _presentable(material)
    study, costs = material.study, material.costs
    sections = tuple(_sections(material))
    return {
        "version": text.one_line(study.hotlap_version, limit=40),
        "script": first_screen.script_name(study),
        "script_command": text.command(study.workload),
        "headline": headline(study),
        "what_was_done": presenter_of(study.kind).what_was_done(study),
        "changes": first_screen.changes(study),
        "facts": tuple(first_screen.facts(study)),
        "next": first_screen.next_command(material),
        "price": tuple(cost_lines(costs))[:1] if costs is not None and costs.million_before is not None else (),
        "sections": sections,
        "draws": any(isinstance(block, Picture) for it in sections for _, block in it.blocks),
    }


def _sections(material: Material) -> Iterator[_Section]:
    """All sections in order, each chart in the section that places it, else in one of its own."""
    pictures = {it.name: Picture(it, embedded_json(it.drawn), _still(it)) for it in charts_of(material)}
    found = list(page_sections(material))
    placed = {block.name for it in found for block in it.section.body if isinstance(block, Figure)}
    own = (it.chart for name, it in pictures.items() if name not in placed)
    found += [Placed(it.name, _OTHER_CHARTS, Section(it.title, (Figure(it.name),))) for it in own]
    for it in sorted(found, key=lambda it: it.order):
        blocks = tuple(_drawn(it.section.body, pictures))
        if not all(isinstance(block, Lead) for block in blocks):
            yield _Section(
                it.name, it.section.title, tuple((_macro(block, it.section.title), block) for block in blocks)
            )


def _drawn(body: Sequence[PageBlock], pictures: Mapping[str, Picture]) -> Iterator[PageBlock]:
    """The blocks with each figure as its picture, without those that were not measured."""
    for block in body:
        if not isinstance(block, Figure):
            yield block
        elif block.name in pictures:
            yield dataclasses.replace(pictures[block.name], heading=block.heading)


def _macro(block: PageBlock, title: str) -> str:
    """``trace_file`` for a ``TraceFile``; a table does not repeat the title of its section."""
    if isinstance(block, Table) and block.caption == title:
        return "table_named_above"
    return _CAPITAL.sub(lambda found: f"_{found[0].lower()}", type(block).__name__).removeprefix("_")


def _still(chart: Chart) -> str:
    return still_picture(chart.still or chart.drawn, chart.name)


def _presentable(material: Material) -> Material:
    directory = material.study.workload.directory
    return dataclasses.replace(
        material,
        study=presentable(material.study, directory),
        profile=presentable(material.profile, directory),
        plan_profile=presentable(material.plan_profile, directory),
        lanes=_presentable_lanes(material.lanes, directory),
        plan_lanes=_presentable_lanes(material.plan_lanes, directory),
        command=presentable(material.command, directory),
        plan_path=presentable(material.plan_path, directory),
        patch=presentable(material.patch, directory),
        source_lines=presentable(material.source_lines, directory),
    )


def _presentable_lanes(lanes: Lanes | None, directory: str) -> Lanes | None:
    """The lanes with presentable names: profilers name places in files, and scripts name stretches as they like."""
    if lanes is None:
        return None
    names = {it.name for lane in lanes.lanes for it in lane.spans} | {
        it[0] for lane in lanes.lanes for it in lane.longest
    }
    shown = {it: presentable(it, directory) for it in names}
    return lanes._replace(
        lanes=tuple(
            lane._replace(
                spans=tuple(it._replace(name=shown[it.name]) for it in lane.spans),
                longest=tuple((shown[name], times, spent) for name, times, spent in lane.longest),
            )
            for lane in lanes.lanes
        )
    )


@cache
def _text_of(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _environment() -> Environment:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingPackageError(
            "The HTML report needs the package jinja2, which is not installed.",
            remedy='pip install "hotlap[report]", or use `hotlap report --markdown`, which needs nothing.',
        ) from error
    made = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["code"] = lambda words: Markup(code(words))
    return made
