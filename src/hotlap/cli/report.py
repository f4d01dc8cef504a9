"""``hotlap report``: show a study again. Nothing is measured."""

from __future__ import annotations

from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.cli.costs import add_cost_options, costs_of
from hotlap.errors import StudyError
from hotlap.render.json import study_json
from hotlap.render.terminal import report

_DESCRIPTION = "Shows a study again, by default the last one. Nothing is measured."

_EXAMPLES = """\
examples:
  hotlap report
  hotlap report --json .hotlap/20260131-142501-337
  hotlap report --price 2.50EUR --samples 90M  what that costs, before and after
  hotlap report --plan-out hotlap.toml         write the study's plan (again)"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap report", _DESCRIPTION, _EXAMPLES, usage="hotlap report [options] [STUDY]")
    made.add_argument("study", nargs="?", type=Path, default=api.STUDIES, help="a study, or a folder of studies")
    made.add_argument("--json", action="store_true", help="print the study as one JSON document")
    made.add_argument("--plan-out", type=Path, metavar="FILE", help="write the study's plan to this file")
    add_cost_options(made)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    found = api.load_study(choices.study)
    plan_path = choices.plan_out
    if plan_path is not None:
        if not found.plan.settings:
            raise StudyError("The study kept no lever, so there is no plan to write.", remedy="Leave --plan-out out.")
        api.write_plan(found, plan_path)
    if choices.json:
        screen.say(study_json(found, costs_of(found, choices)))
    else:
        screen.show(report(found, plan_path=_shown_plan(plan_path), costs=costs_of(found, choices)))
    return 0


def _shown_plan(path: Path | None) -> str:
    """The plan to name in the next command: the one just written, or the usual one where it lies."""
    if path is not None:
        return str(path)
    usual = Path("hotlap.toml")
    return str(usual) if usual.exists() else ""
