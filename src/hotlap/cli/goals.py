"""``--goal`` and ``--slowdown``: what a search is to make better."""

from __future__ import annotations

import argparse
import math

from hotlap.cli.arguments import Parser
from hotlap.errors import UsageError
from hotlap.objective import USUAL_SLOWDOWN, for_memory, slowdown_of
from hotlap.records import Objective

_GOALS = ("speed", "memory")


def add_goal_options(parser: Parser) -> None:
    """What the search is for."""
    group = parser.add_argument_group("the goal")
    group.add_argument(
        "--goal",
        choices=_GOALS,
        default=_GOALS[0],
        help="optimise this; memory: peak memory, of the device where there is one (default: speed)",
    )
    group.add_argument(
        "--slowdown",
        type=ratio,
        metavar="TIMES",
        help=f"with --goal memory: a step may take this many times as long (default: {USUAL_SLOWDOWN:g})",
    )


def objective_from(choices: argparse.Namespace) -> Objective:
    """What the choices ask for. Raises :class:`UsageError` for a slowdown where speed is the goal."""
    goal, slowdown = getattr(choices, "goal", _GOALS[0]), getattr(choices, "slowdown", None)
    if goal == "memory":
        return for_memory(USUAL_SLOWDOWN if slowdown is None else slowdown)
    if slowdown is not None:
        raise UsageError(
            "--slowdown has no effect when the goal is speed.", remedy="Add --goal memory, or leave it out."
        )
    return Objective()


def option_words(objective: Objective) -> list[str]:
    """The options that ask for an objective; none where no option does, or by default."""
    slowdown = slowdown_of(objective)
    return ["--goal", "memory", "--slowdown", f"{slowdown:g}"] if slowdown is not None else []


def ratio(text: str) -> float:
    """``1.3`` or ``1.3x`` as a number from 1 on. Raises :class:`argparse.ArgumentTypeError`."""
    try:
        found = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        found = 0.0
    if not (math.isfinite(found) and found >= 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of at least 1; write it like 1.3 for 30 % more time"
        )
    return found
