"""``hotlap report``: show a study again. Nothing is measured."""

from __future__ import annotations

import webbrowser
from pathlib import Path

from hotlap import api
from hotlap import study as studies
from hotlap.cli import screen
from hotlap.cli.answers import add_full_options, show_answer
from hotlap.cli.arguments import Parser
from hotlap.cli.costs import add_cost_options, costs_of
from hotlap.cli.named import named_study
from hotlap.cli.plans import plan_of
from hotlap.diagnose import Profile
from hotlap.errors import StudyError, UsageError
from hotlap.records import Costs, Study
from hotlap.render.json import study_json
from hotlap.render.markdown import markdown_report
from hotlap.render.summary import summary
from hotlap.render.terminal import report

_DESCRIPTION = "Shows a study again, by default the last one. Nothing is measured."

PAGE = Path("hotlap-report.html")
"""The default file of the HTML report."""

_EXAMPLES = """\
examples:
  hotlap report                                the answer on one screen
  hotlap report --full .hotlap/20260131-142501-337
                                               the whole report, through the pager
  hotlap report --json .hotlap/20260131-142501-337
  hotlap report --html --open                  a page to look at and to pass on
  hotlap report .hotlap/lab --html lab.html    of another study, into that file
  hotlap report --markdown >> "$GITHUB_STEP_SUMMARY"
  hotlap report --price 2.50EUR --samples 90M  what that costs, before and after
  hotlap report --plan-out hotlap.toml         write the study's plan (again)"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap report", _DESCRIPTION, _EXAMPLES, usage="hotlap report [options] [STUDY]")
    made.add_argument("study", nargs="?", type=Path, default=api.STUDIES, help="a study, or a folder of studies")
    shape = made.add_mutually_exclusive_group()
    add_full_options(made)
    shape.add_argument("--json", action="store_true", help="print the study as one JSON document")
    shape.add_argument("--markdown", action="store_true", help="print it as Markdown, for a pull request")
    shape.add_argument(
        "--html", nargs="?", type=Path, const=PAGE, metavar="PATH",
        help=f"write it as one HTML file that needs nothing else (default: {PAGE})",
    )  # fmt: skip
    made.add_argument("--open", action="store_true", help="open the HTML report in the browser")
    made.add_argument("--plan-out", type=Path, metavar="FILE", help="write the study's plan to this file")
    add_cost_options(made, epochs=True)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    if choices.open and (choices.json or choices.markdown):
        raise UsageError("--open works only with the HTML report.", remedy="Omit --json and --markdown.")
    if choices.html is not None and choices.html.is_dir() and choices.study == api.STUDIES:
        choices.study, choices.html = choices.html, PAGE  # `--html STUDY`: no page can be written over a folder
    if choices.html is not None or choices.open:
        from hotlap.cli.page import check_place

        check_place(choices.html or PAGE)
    plan_path = choices.plan_out
    found = named_study(choices.study, "answer" if plan_path is None else "plan")
    if plan_path is not None:
        if not found.plan.settings:
            raise StudyError("The study kept no lever, so there is no plan to write.", remedy="Omit --plan-out.")
        api.write_plan(found, plan_path)
    costs = costs_of(found, choices)
    profile = studies.attachment_of(Path(found.directory), studies.PROFILE, Profile)
    if choices.json:
        screen.say(study_json(found, costs))
    elif choices.markdown:
        screen.say(markdown_report(found, costs=costs, profile=profile).rstrip("\n") + "\n")
    elif choices.html is not None or choices.open:
        _page(found, choices.html or PAGE, costs, plan_of(found, plan_path), show=choices.open)
    else:
        shown_plan = plan_of(found, plan_path)
        show_answer(
            choices,
            lambda: summary(found, plan_path=shown_plan, costs=costs),
            lambda: report(found, plan_path=shown_plan, costs=costs, profile=profile),
        )
    return 0


def _page(found: Study, path: Path, costs: Costs | None, plan_path: str, *, show: bool) -> None:
    from hotlap.cli.page import write_page

    write_page(found, path, costs, plan_path)
    screen.say(str(path))
    if show and not webbrowser.open(path.absolute().as_uri()):
        screen.note(f"No browser could be started; open {path} in one.")
