"""Ask before running the command of a study that this user did not make here."""

from __future__ import annotations

import argparse
import shlex
import sys

from hotlap.cli import screen
from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.records import Workload
from hotlap.redact import redacted
from hotlap.render import text
from hotlap.study import Approve, Opening, refuse_foreign


def add_trust_option(parser: Parser) -> None:
    """Add ``--yes``, which answers the question in advance."""
    parser.add_argument(
        "--yes", action="store_true", help="without confirmation, run the command of a study that was not made here"
    )


def approval(choices: argparse.Namespace) -> Approve:
    """Make a function that shows a foreign study's command and asks, unless ``--yes`` is given.

    Without a terminal it raises :class:`UsageError`.
    """

    def approve(opening: Opening) -> None:
        if opening.ours:
            return
        screen.warn_verbatim(command_lines(opening))
        if choices.yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            refuse_foreign(opening)
        if not _confirmed():
            raise UsageError("Nothing was run.", remedy="Begin a new study, or confirm the command.")

    return approve


def only(approved: Opening) -> Approve:
    """Make a function that accepts only the approved study, unchanged. Raises :class:`UsageError`."""

    def approve(opening: Opening) -> None:
        if opening != approved:
            raise UsageError("The study changed in the meantime.", remedy="Run it again.")

    return approve


def command_lines(opening: Opening) -> list[str]:
    """Describe what would run, where, and why hotlap asks; paths are shown in full."""
    workload = opening.workload
    return [
        f"The study {text.one_line(opening.directory)} was not made here by you: {opening.why_foreign}. It would run:",
        f"  interpreter  {text.one_line(workload.python)}",
        f"  directory    {text.one_line(workload.directory)}",
        f"  command      {text.one_line(_command(workload), limit=1000)}",
    ]


def _command(workload: Workload) -> str:
    target = ["-m", workload.target] if workload.kind == "module" else [workload.target]
    interpreter = ["python", *workload.interpreter_options] if workload.interpreter_options else []
    return shlex.join([*interpreter, *target, *redacted(workload).arguments])


def _confirmed() -> bool:
    sys.stderr.write("hotlap: Run it? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
