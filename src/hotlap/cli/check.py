"""``hotlap check``: for CI: check for slowdowns and changed results."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from hotlap import api
from hotlap.cli import screen
from hotlap.cli.answers import add_full_options, show_answer
from hotlap.cli.arguments import Parser
from hotlap.cli.options import (
    add_comparison_options,
    add_isolation_options,
    add_limit_options,
    comparison_options_from,
    parsed,
)
from hotlap.cli.workload import add_python_option
from hotlap.errors import UsageError
from hotlap.procedures.check import find_against
from hotlap.procedures.check.kept import check_and_keep
from hotlap.records import Against, Check, CheckVerdict, Workload
from hotlap.render.check import check_report, check_summary
from hotlap.render.check_files import check_junit, check_markdown
from hotlap.render.live import LiveView

PASSED, FAILED, INCONCLUSIVE = 0, 1, 3

_EXIT_CODES: dict[CheckVerdict, int] = {"passed": PASSED, "failed": FAILED, "inconclusive": INCONCLUSIVE}
_INCONCLUSIVE_IS: dict[str | None, CheckVerdict] = {None: "inconclusive", "pass": "passed", "fail": "failed"}

_DESCRIPTION = """\
Compares the speed and the losses of the script with those at a git revision, or with the gain of a
recorded plan, on this machine and in the same replicates. The default baseline is the last finished
study of the script, else hotlap.toml."""

_EXAMPLES = """\
examples:
  hotlap check --baseline main train.py --epochs 1
  hotlap check --baseline HEAD~1 --speed-only train.py     the change is meant to change training
  hotlap check --baseline hotlap.toml train.py             does its gain still hold?
  hotlap check --markdown "$GITHUB_STEP_SUMMARY" --junit hotlap.xml --baseline main train.py

Your files are not changed; the result is stored in .hotlap/check and listed by `hotlap history`.

exit code: 0 passed; 1 slower, no longer matching, or failing; 3 inconclusive: a noisy machine, a budget
that is too small, a launch that timed out (--inconclusive-is makes it 0 or 1); 2 for bad usage or a
baseline that fails without hotlap; 130 after Ctrl-C."""


def parser() -> Parser:
    """The command's options."""
    made = Parser(
        "hotlap check", _DESCRIPTION, _EXAMPLES, usage="hotlap check [options] SCRIPT [arguments of the script]"
    )
    add_python_option(made)
    group = made.add_argument_group("the comparison")
    group.add_argument("--baseline", metavar="REF|FILE", help="a git revision, a plan file, or a study")
    group.add_argument(
        "--plan", type=Path, metavar="FILE",
        help="with a git revision: run both under this plan (default: hotlap.toml where there is one)",
    )  # fmt: skip
    group.add_argument("--no-plan", action="store_true", help="with a git revision: run both without a plan")
    group.add_argument("--speed-only", action="store_true", help="compare only the speed, not the losses")
    group.add_argument(
        "--inconclusive-is",
        choices=("pass", "fail"),
        help="treat an inconclusive result as pass or fail (default: exit 3)",
    )
    add_comparison_options(group)
    add_isolation_options(made)
    add_limit_options(made)
    _add_output_options(made)
    return made


def _add_output_options(made: Parser) -> None:
    group = made.add_argument_group("output")
    group.add_argument("--markdown", type=Path, metavar="FILE", help="append the answer to this file as Markdown")
    group.add_argument("--junit", type=Path, metavar="FILE", help="write the answer to this file as JUnit XML")
    group.add_argument(
        "--study", type=Path, default=api.STUDIES, metavar="DIR", help="store studies in this folder (default: .hotlap)"
    )
    add_full_options(group)
    group.add_argument("--json", action="store_true", help="print one JSON document")
    group.add_argument("--show-output", action="store_true", help="show what the script prints in each trial")
    made.add_debug()


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Raises :class:`hotlap.errors.HotlapError`."""
    choices, workload = parsed(parser(), words)
    for path in (choices.markdown, choices.junit):
        _refuse_folder(path)
    against = find_against(
        choices.baseline, workload, choices.study, plan_path=choices.plan, without_plan=choices.no_plan
    )
    found = _check(choices, workload, against, engine)
    _show(choices, found)
    verdict = _INCONCLUSIVE_IS[choices.inconclusive_is] if found.verdict == "inconclusive" else found.verdict
    return _EXIT_CODES[verdict]


def _check(choices: argparse.Namespace, workload: Workload, against: Against, engine: api.Engine) -> Check:
    compare = partial(
        check_and_keep,
        workload,
        against,
        comparison_options_from(choices),
        engine.executor,
        studies=choices.study,
        speed_only=choices.speed_only,
    )
    if choices.quiet:
        return compare()
    console = screen.err()
    with LiveView(console, workload, interactive=screen.redraws(console) and not choices.show_output) as view:
        return compare(view.update)


def _show(choices: argparse.Namespace, found: Check) -> None:
    if choices.json:
        screen.document("check", found)
    else:
        show_answer(choices, lambda: check_summary(found), lambda: check_report(found))
    if choices.markdown is not None:
        _write(choices.markdown, check_markdown(found), "a")
    if choices.junit is not None:
        verdict = _INCONCLUSIVE_IS[choices.inconclusive_is]
        _write(choices.junit, check_junit(found, inconclusive_is=verdict), "w")


def _write(path: Path, said: str, mode: str) -> None:
    try:
        with path.open(mode, encoding="utf-8") as file:
            file.write(said)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror or error}.", remedy="Name a file that may be written."
        ) from error


def _refuse_folder(path: Path | None) -> None:
    """Raise :class:`UsageError` now for what would otherwise fail after the trials."""
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise UsageError(f"{path} is not a writable file.", remedy="Name a file in a folder that exists.")
