"""The answer again, at the end, where a terminal shows it when the rest has scrolled away."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.headline import headline
from hotlap.render.isolation import study_warnings
from hotlap.render.layout import TONES, indented
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 88


def terminal(material: Material) -> Section[RenderableType] | None:
    """The headline, the plan, and whether to read warnings. A script that failed has a short report."""
    study = material.study
    if study.status == "script-failed":
        return None
    answer = headline(study)
    lines = [Text(answer.sentence, style=TONES[answer.tone])]
    lines += [Text(it, style="dim") for it in (*_planned(study), *_warned(study))]
    return Section("In short", tuple(indented(it, 2) for it in lines))


def _planned(study: Study) -> Iterator[str]:
    """The plan's levers: none where fresh launches did not confirm what was kept at first."""
    if study.plan.settings:
        yield f"In the plan: {text.listed([text.one_line(it.lever) for it in study.plan.settings])}."


def _warned(study: Study) -> Iterator[str]:
    count = len(study_warnings(study))
    if count:
        which = "warning" if count == 1 else text.count(count, "warning")
        yield f"Read the {which} above before you quote a figure."
