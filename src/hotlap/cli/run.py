"""``hotlap run``: run a script with the levers of a plan, without changing its source."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from hotlap import api, plan
from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.cli.workload import add_python_option, interpreter_from, workload_from
from hotlap.errors import NOT_BOOTED, UsageError
from hotlap.records import Plan, Workload
from hotlap.trial import in_place
from hotlap.trial.beside import end_like

USUAL_PLAN = Path("hotlap.toml")
_LARGEST_PORT = 65535

_DESCRIPTION = f"""\
Runs the script with the levers of a plan switched on and nothing else of hotlap: no clock, no
redirection. The script takes this process over, so exit code, signals and terminal are its own.
If a lever cannot be switched on, the process ends with a message and exit code {NOT_BOOTED}. Python
processes that the script starts get the levers too, unless they are started with a PYTHONPATH
of their own or with python -I, -S or -E: those run without the levers and without a message.

With --watch hotlap stays next to the script and times some or all of its steps: a status line on a
terminal, alarms when data wait grows, memory creeps, a loss scale sinks, or steps, a rank or a clock
slow down, and a study of the run at its end, however it ends. The script's output, files, random
numbers and exit code are as without it. Without a plan it only watches."""

_EXAMPLES = """\
examples:
  hotlap run train.py --epochs 90              with the levers in hotlap.toml
  hotlap run --plan plans/a10.toml -m package.train
  hotlap run --watch train.py                  and keep a study of the run
  hotlap run --watch --metrics-port 9100 --tensorboard runs train.py"""


def parser() -> Parser:
    """The command's options."""
    made = Parser("hotlap run", _DESCRIPTION, _EXAMPLES, usage="hotlap run [options] SCRIPT [arguments of the script]")
    made.add_argument("--plan", type=Path, metavar="FILE", help=f"use this plan (default: {USUAL_PLAN})")
    made.add_argument("--watch", action="store_true", help="watch the run: status line, alarms, a study at its end")
    made.add_argument(
        "--metrics-port", type=_port, metavar="PORT",
        help="with --watch: serve OpenMetrics at this port of 127.0.0.1 (0: a free one)",
    )  # fmt: skip
    made.add_argument(
        "--tensorboard", type=Path, metavar="DIR", help="with --watch: write scalars for TensorBoard below this folder"
    )
    add_python_option(made)
    made.add_debug()
    return made


def main(words: list[str], engine: api.Engine) -> int:
    """Run the command. Without ``--watch`` it returns only by raising :class:`hotlap.errors.HotlapError`."""
    made = parser()
    own, target = made.split(words)
    choices = made.parse_args(own)
    if not choices.watch and (choices.metrics_port is not None or choices.tensorboard is not None):
        raise UsageError("--metrics-port and --tensorboard are options of --watch.", remedy="Add --watch.")
    only_watched = choices.watch and choices.plan is None and not USUAL_PLAN.exists()
    choices.plan = choices.plan or USUAL_PLAN
    read = plan.EMPTY if only_watched else plan.read(choices.plan)
    workload = workload_from(target, "run", interpreter_from(choices, trains=False))
    differs = "" if only_watched else _other_torch(choices.plan, workload)
    if differs:
        screen.note(differs, style="yellow")
    if not read.settings and not only_watched:
        screen.note(f"The plan {choices.plan} has no levers: the script runs unchanged.", style="yellow")
    if choices.watch:
        return _watched(workload, read, choices)
    environment = in_place.environment_with(read, choices.plan, os.environ)
    if read.settings and workload.python != sys.executable:
        in_place.check_interpreter(workload, environment)
    in_place.become(workload, environment)


def _watched(workload: Workload, read: Plan, choices: argparse.Namespace) -> int:
    from hotlap.cli.watching_run import run_watched  # plain `hotlap run` need not wait for it
    from hotlap.trial.owned_folder import owned_folder

    with owned_folder("hotlap-watch-") as folder:
        plan_path = choices.plan if read.settings else None
        environment = in_place.environment_with(read, plan_path, os.environ, folder)
        if workload.python != sys.executable:
            in_place.check_interpreter(workload, environment)
        ended = run_watched(workload, environment, folder, read, choices)
    return end_like(ended)


def _port(word: str) -> int:
    if not word.isdecimal() or int(word) > _LARGEST_PORT:
        raise argparse.ArgumentTypeError(f"{word!r} is no port: give a number from 0 to {_LARGEST_PORT}")
    return int(word)


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
