"""A study as a report for the terminal: the answer, then every section with content."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from hotlap.diagnose.profile import Profile
from hotlap.records import Costs, Study
from hotlap.render import text
from hotlap.render.headline import headline
from hotlap.render.kinds.api import Headline
from hotlap.render.layout import TONES, Trimmed, indented
from hotlap.render.material import Material
from hotlap.render.presentable import presentable
from hotlap.render.sections.api import terminal_sections

WIDEST = 120


def report(
    study: Study, *, plan_path: str = "hotlap.toml", costs: Costs | None = None, profile: Profile | None = None
) -> RenderableType:
    """The whole report. ``plan_path`` is the path of the plan, or empty."""
    study = presentable(study, study.workload.directory)
    pieces: list[RenderableType] = [_top(study), Text(), _headline(headline(study))]
    for it in terminal_sections(Material(study=study, profile=profile, costs=costs, plan_path=plan_path)):
        pieces += [Text(), Text(it.title, style="bold"), *it.body]
    return Trimmed(Constrain(Group(*pieces), WIDEST))


def _top(study: Study) -> Text:
    spent = f"  {text.clock(study.spent_seconds)}" if study.spent_seconds else ""
    return Text("hotlap", style="bold").append(f"  {text.command(study.workload)}{spent}", style="dim")


def _headline(it: Headline) -> RenderableType:
    pieces: list[RenderableType] = [Text(it.sentence, style=TONES[it.tone])]
    pieces += [indented(Text(line, style="dim"), 2) for line in it.details]
    if it.output:
        pieces.append(Padding(Text(it.output), (1, 0, 0, 2), expand=False))
    return Group(*pieces)
