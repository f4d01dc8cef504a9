"""``hotlap run``: run a script with the levers of a plan, without changing its source."""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hotlap import api, plan
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import add_python_option, interpreter_from, workload_from
from hotlap.errors import NOT_BOOTED
from hotlap.records import Workload
from hotlap.trial import in_place

_DESCRIPTION = f"""\
Runs the script with the levers of a plan switched on and nothing else of hotlap: no clock, no
redirection. The script takes this process over, so exit code, signals and terminal are its own.
If a lever cannot be switched on, the process ends with a message and exit code {NOT_BOOTED}. Python
processes that the script starts get the levers too, unless they are started with a PYTHONPATH
of their own or with python -I, -S or -E: those run without the levers and without a message."""

_EXAMPLES = """\
examples:
  hotlap run train.py --epochs 90              with the levers in hotlap.toml
  hotlap run --plan plans/a10.toml -m package.train"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap run", _DESCRIPTION, _EXAMPLES, usage="hotlap run [options] SCRIPT [arguments of the script]")
    made.add_argument(
        "--plan", type=Path, default=Path("hotlap.toml"), metavar="FILE", help="use this plan (default: hotlap.toml)"
    )
    add_python_option(made)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command; returns only by raising :class:`hotlap.errors.HotlapError`."""
    made = parser()
    own, target = made.split(words)
    choices = made.parse_args(own)
    read = plan.read(choices.plan)
    workload = workload_from(target, "run", interpreter_from(choices, trains=False))
    differs = _other_torch(choices.plan, workload)
    if differs:
        screen.note(differs, style="yellow")
    environment = in_place.environment_with(read, choices.plan, os.environ)
    if not read.settings:
        screen.note(f"The plan {choices.plan} has no levers: the script runs unchanged.", style="yellow")
    elif workload.python != sys.executable:
        in_place.check_interpreter(workload, environment)
    in_place.become(workload, environment)


def _other_torch(path: Path, workload: Workload) -> str:
    """Warn if the plan was made with another torch; unknown for other interpreters."""
    planned = str(plan.read_head(path).get("torch", ""))
    if not planned or workload.python != sys.executable:
        return ""
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return ""
    if planned.partition("+")[0] == installed.partition("+")[0]:
        return ""
    return (
        f"{path} was made with torch {planned}, but torch {installed} is installed; run `hotlap tune` to "
        "measure it again"
    )
