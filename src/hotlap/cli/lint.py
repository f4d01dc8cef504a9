"""``hotlap lint``: find and fix bad patterns in training code without running it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hotlap.cli import arguments, screen
from hotlap.cli.arguments import Parser
from hotlap.errors import LintError, UsageError
from hotlap.render.lint import diffs, lint_report
from hotlap.render.lint_formats import as_github, as_json, as_sarif
from hotlap.source.lint.api import FixSafety
from hotlap.source.lint.check import Unreadable
from hotlap.source.lint.configuration import Configuration, chosen_rules, configuration_for
from hotlap.source.lint.documents import LARGEST_SCRIPT_BYTES
from hotlap.source.lint.folders import files_of
from hotlap.source.lint.pool import lint_many
from hotlap.source.lint.records import FileResult, LintProblem, LintReport
from hotlap.source.lint.run import Options, lint_source, report_of

_DESCRIPTION = """\
Finds patterns that make PyTorch training slow or wrong, without running anything: in .py files and
notebooks, those that import torch. The exit code is 0 where nothing is found, 1 where something is,
and 2 where a file could not be checked."""

_EXAMPLES = """\
suppress:
  # hotlap: ignore[HL201]    on a line of the statement; also # noqa: HL201
  # hotlap: ignore-file      the whole file, or ignore-file[HL201]

configure, in pyproject.toml:
  [tool.hotlap.lint]
  select = ["HL"]            codes, their beginnings, or rules' names
  ignore = ["HL201"]
  exclude = ["third_party/*"]
  [tool.hotlap.lint.per-file-ignores]
  "tests/*" = ["HL2"]

examples:
  hotlap lint .
  hotlap lint --fix train.py          carry out fixes that keep what the program computes
  hotlap lint --diff --unsafe-fixes src
  hotlap lint --output-format github .
  hotlap rule HL201                   the page of one rule"""

_STANDARD_INPUT = "-"


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap lint", _DESCRIPTION, _EXAMPLES, usage="hotlap lint [options] [PATH ...]")
    made.add_argument(
        "paths", nargs="*", default=["."], metavar="PATH", help="files, folders, or - for standard input (default: .)"
    )
    made.add_argument("--fix", action="store_true", help="apply the safe fixes")
    made.add_argument("--unsafe-fixes", action="store_true", help="with --fix or --diff: include unsafe fixes")
    made.add_argument("--diff", action="store_true", help="show what --fix would change, without changing it")
    for name, what in (("select", "check only these rules"), ("ignore", "skip these rules")):
        made.add_argument(
            f"--{name}", type=arguments.names, action="extend", default=[], metavar="HL1,HL201", help=what
        )
    made.add_argument(
        "--output-format", choices=("text", "json", "sarif", "github"), default="text", help="(default: text)"
    )
    made.add_argument(
        "--json", action="store_const", const="json", dest="output_format", help="same as --output-format json"
    )
    made.add_debug()
    return made


def main(words: list[str], engine: object = None) -> int:
    """Run the command; nothing is executed or imported. Raises :class:`hotlap.errors.HotlapError`."""
    choices = parser().parse_args(words)
    _check(choices)
    configuration = configuration_for(Path.cwd())
    options = Options(
        rules=chosen_rules(choices.select or configuration.select, (*configuration.ignore, *choices.ignore)),
        configuration=configuration,
        grades=_grades(choices),
        write=choices.fix and not choices.diff,
        show_diff=choices.diff,
    )
    report = _report(choices.paths, configuration, options)
    _show(report, choices)
    if report.problems:
        return 2
    return 1 if report.findings or (choices.diff and report.fixed) else 0


def _check(choices: argparse.Namespace) -> None:
    if choices.unsafe_fixes and not (choices.fix or choices.diff):
        raise UsageError("--unsafe-fixes does nothing by itself.", remedy="Add --fix, or --diff to see it first.")
    if choices.diff and choices.output_format != "text":
        raise UsageError("--diff prints a diff, not a report.", remedy="Leave --output-format out.")
    if _STANDARD_INPUT in choices.paths and (len(choices.paths) > 1 or (choices.fix and not choices.diff)):
        raise UsageError(
            "Standard input cannot be combined with files or fixed in place.", remedy="Use --diff, or name the file."
        )


def _grades(choices: argparse.Namespace) -> frozenset[FixSafety]:
    if not (choices.fix or choices.diff):
        return frozenset()
    return frozenset({"safe", "unsafe"}) if choices.unsafe_fixes else frozenset({"safe"})


def _report(paths: list[str], configuration: Configuration, options: Options) -> LintReport:
    if paths == [_STANDARD_INPUT]:
        return report_of([_from_standard_input(options)], options.rules)
    files = files_of([Path(it) for it in paths], configuration)
    if not files:
        raise LintError("It contains no Python file or notebook.", where=", ".join(paths), remedy="Name others.")
    return lint_many(files, options)


def _from_standard_input(options: Options) -> FileResult:
    name = "<stdin>"
    source = sys.stdin.buffer.read(LARGEST_SCRIPT_BYTES + 1)
    try:
        return lint_source(name, source, options.rules, options)[0]
    except Unreadable as error:
        return FileResult(file=name, problems=(LintProblem(file=name, what=error.what, line=error.line),))


def _show(report: LintReport, choices: argparse.Namespace) -> None:
    if choices.diff:
        shown = diffs(report)
        for problem in report.problems:
            screen.note(f"{problem.file}: {problem.what}", style="yellow", always=True)
    elif choices.output_format == "text":
        shown = lint_report(report, screen.paper())
    else:
        shown = {"json": as_json, "sarif": as_sarif, "github": as_github}[choices.output_format](report)
    if shown:
        screen.say(shown)
