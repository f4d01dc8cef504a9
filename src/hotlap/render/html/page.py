"""The page: what it holds, in which order, and how it is put together."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.errors import MissingPackageError
from hotlap.redact import redacted_text
from hotlap.render import text
from hotlap.render.cost import cost_lines
from hotlap.render.findings import answers, overlap
from hotlap.render.headline import headline
from hotlap.render.html import sections
from hotlap.render.html.charts import ceilings, timeline
from hotlap.render.html.charts.api import charts_of
from hotlap.render.html.drawing import drawing_code, still_picture
from hotlap.render.html.embedding import code, embedded_json, policy
from hotlap.render.html.material import Material
from hotlap.render.html.parts import Chart
from hotlap.render.kinds.api import presenter_of
from hotlap.render.lever_table import footnote, skipped_rows, tried_rows
from hotlap.render.presentable import presentable
from hotlap.render.terminal import cost_sentences

if TYPE_CHECKING:
    from jinja2 import Environment

GENERATOR = "hotlap report"
"""What the page says of its maker; a file that says so is a report, and may be replaced by a newer one."""

_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True)
class Picture:
    """A chart as the page holds it: what a script draws, as JSON that may stand in a script element, and the still
    picture that stands there until it does, as SVG."""

    chart: Chart
    drawn: str
    still: str


class Pictures(Mapping[str, Picture]):
    """The pictures by name. The template says which it has placed, and shows the others in the order of the page: no
    chart is lost for want of a line in the template."""

    def __init__(self, pictures: Iterable[Picture]) -> None:
        self._pictures = {it.chart.name: it for it in pictures}
        self._placed: set[str] = set()

    def __getitem__(self, name: str) -> Picture:
        return self._pictures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pictures)

    def __len__(self) -> int:
        return len(self._pictures)

    def placed(self, name: str) -> Picture:
        """The picture, which has its place now. Raises ``KeyError``."""
        self._placed.add(name)
        return self[name]

    def not_placed(self) -> list[Picture]:
        """Those that have no place yet."""
        return [it for name, it in self._pictures.items() if name not in self._placed]


def page(material: Material) -> str:
    """The whole page as text.

    Raises :class:`hotlap.errors.MissingPackageError` when the packages of the extra ``report`` are not installed.
    """
    environment = _environment()
    library, own_code = drawing_code(), _text_of("page.js")
    return environment.get_template("page.html").render(
        generator=GENERATOR,
        policy=policy(library, own_code),
        styles=_text_of("page.css"),
        drawing_code=library,
        own_code=own_code,
        **_content(material),
    )


def _content(material: Material) -> dict[str, Any]:
    material = _presentable(material)
    study, costs = material.study, material.costs
    presenter = presenter_of(study.kind)
    beside = {it.lever: answers(it.lever, study.findings) for it in study.outcomes}
    findings = sections.finding_views(study)
    return {
        "version": text.one_line(study.hotlap_version, limit=40),
        "script": sections.script_name(study),
        "script_command": text.command(study.workload),
        "headline": headline(study),
        "what_was_done": presenter.what_was_done(study),
        "facts": tuple(sections.facts(study)),
        "price": tuple(cost_lines(costs))[:1] if costs is not None and costs.million_before is not None else (),
        "costs": tuple(cost_sentences(study, costs)),
        "pictures": Pictures(
            Picture(it, embedded_json(it.drawn), still_picture(it.still or it.drawn, it.name))
            for it in charts_of(material)
        ),
        "tried": tried_rows(study.outcomes, study.account_before, beside),
        "tried_note": footnote(study.outcomes),
        "skipped": skipped_rows(study.outcomes),
        "ceiling_table": ceilings.ceiling_table(study),
        "flop_utilisation": _utilisation(study.model_flop_utilisation),
        "findings": findings,
        "findings_note": overlap(study.findings) if sum(1 for it in findings if it.label) > 1 else "",
        "findings_were_sought": study.profiled_steps > 0,
        "longest": timeline.longest_table(material.lanes) if material.lanes is not None else None,
        "trace_path": text.one_line(study.trace_path, limit=1000),
        "trace_command": f"hotlap trace {text.shell_word(study.trace_path)}",
        "patch_command": f"hotlap patch {text.shell_word(study.directory)}".rstrip(),
        "patch": sections.diff_lines(material.patch),
        "plan": sections.plan_text(study),
        "next": tuple(presenter.next_commands(study, "hotlap.toml")),
        "study_facts": tuple(sections.study_facts(study, material.command, material.seed)),
        "machine_facts": tuple(sections.machine_facts(study.machine)),
        "files": (*sections.files(study.files), *sections.hosts(study.hosts)),
        "warnings": sections.warnings(study),
    }


def _presentable(material: Material) -> Material:
    directory = material.study.workload.directory
    return dataclasses.replace(
        material,
        study=presentable(material.study, directory),
        profile=presentable(material.profile, directory),
        patch=redacted_text(material.patch),
    )


def _utilisation(share: float | None) -> str:
    if share is None:
        return ""
    return f"Model FLOP utilisation: {text.share(share)} of the matmul rate measured on this machine."


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
