"""``--goal``, ``--slowdown`` and ``--p99``: what a search optimises, and within which limits."""

from __future__ import annotations

import argparse
import math
from typing import get_args

from hotlap.cli.arguments import Parser, short_seconds
from hotlap.errors import UsageError
from hotlap.objective import USUAL_SLOWDOWN, for_inference, for_memory, slowdown_of
from hotlap.records import MEDIAN_CALL_SECONDS, InferenceGoal, Objective

_GOALS = ("speed", "memory")


def add_goal_options(parser: Parser) -> None:
    """Add the options for the goal of a search."""
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


def add_inference_goal_options(parser: Parser) -> None:
    """Add the options for the goal of a search over a model's calls."""
    group = parser.add_argument_group("the goal")
    group.add_argument(
        "--goal",
        choices=get_args(InferenceGoal),
        default=get_args(InferenceGoal)[0],
        help="optimise samples per second, the median time of a call, or peak memory (default: throughput)",
    )
    group.add_argument(
        "--slowdown",
        type=ratio,
        metavar="TIMES",
        help=f"with --goal memory: a call may take this many times as long (default: {USUAL_SLOWDOWN:g})",
    )
    group.add_argument(
        "--p99", type=short_seconds, metavar="TIME", help="recommend only what answers 99 %% of calls within this: 20ms"
    )


def inference_objective_from(choices: argparse.Namespace) -> Objective:
    """Build the objective of a search over a model's calls.

    Raises :class:`UsageError` for a slowdown if memory is not the goal.
    """
    if choices.slowdown is not None and choices.goal != "memory":
        raise UsageError(
            f"--slowdown has no effect when the goal is {choices.goal}.", remedy="Add --goal memory, or leave it out."
        )
    slowdown = USUAL_SLOWDOWN if choices.slowdown is None else choices.slowdown
    return for_inference(choices.goal, slowdown=slowdown, p99_seconds=choices.p99)


def objective_from(choices: argparse.Namespace) -> Objective:
    """Build the objective of a search.

    Raises :class:`UsageError` for a slowdown if speed is the goal.
    """
    goal, slowdown = getattr(choices, "goal", _GOALS[0]), getattr(choices, "slowdown", None)
    if goal == "memory":
        return for_memory(USUAL_SLOWDOWN if slowdown is None else slowdown)
    if slowdown is not None:
        raise UsageError(
            "--slowdown has no effect when the goal is speed.", remedy="Add --goal memory, or leave it out."
        )
    return Objective()


def option_words(objective: Objective) -> list[str]:
    """Return the options that select an objective; empty for the default one."""
    slowdown, p99 = slowdown_of(objective), objective.p99_seconds
    words = ["--goal", "latency"] if objective.metric == MEDIAN_CALL_SECONDS else []
    words += ["--goal", "memory", "--slowdown", f"{slowdown:g}"] if slowdown is not None else []
    return words + (["--p99", f"{1e3 * p99:g}ms"] if p99 is not None else [])


def ratio(text: str) -> float:
    """Parse ``1.3`` or ``1.3x`` as a number of at least 1.

    Raises :class:`argparse.ArgumentTypeError`.
    """
    try:
        found = float(text.strip().lower().removesuffix("x"))
    except ValueError:
        found = 0.0
    if not (math.isfinite(found) and found >= 1):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of at least 1; write it like 1.3 for 30 % more time"
        )
    return found
