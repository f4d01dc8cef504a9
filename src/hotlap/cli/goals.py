"""``--goal``, ``--slowdown`` and ``--p99``: what a search optimises, and within which limits."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import get_args

from hotlap.cli.arguments import Parser, short_seconds
from hotlap.errors import UsageError
from hotlap.objective import USUAL_SLOWDOWN, for_evaluation, for_inference, for_memory
from hotlap.records import InferenceGoal, Objective

_GOALS = ("speed", "memory", "evaluation")
_WITHIN_A_SLOWDOWN = ("memory", "evaluation")


def add_goal_options(parser: Parser) -> None:
    """Add the options for the goal of a search."""
    says = (
        "optimise this; memory: peak memory, of the device where there is one; evaluation: the time of the script's "
        "evaluations (default: speed)"
    )
    _add_group(parser, _GOALS, says, "memory or evaluation", "a step")


def add_inference_goal_options(parser: Parser) -> None:
    """Add the options for the goal of a search over a model's calls."""
    says = "optimise samples per second, the median time of a call, or peak memory (default: throughput)"
    group = _add_group(parser, get_args(InferenceGoal), says, "memory", "a call")
    group.add_argument(
        "--p99", type=short_seconds, metavar="TIME", help="recommend only what answers 99 %% of calls within this: 20ms"
    )


def _add_group(parser: Parser, goals: Sequence[str], says: str, limited: str, unit: str) -> argparse._ArgumentGroup:
    group = parser.add_argument_group("the goal")
    group.add_argument("--goal", choices=goals, default=goals[0], help=says)
    group.add_argument(
        "--slowdown",
        type=ratio,
        metavar="TIMES",
        help=f"with --goal {limited}: {unit} may take this many times as long (default: {USUAL_SLOWDOWN:g})",
    )
    return group


def inference_objective_from(choices: argparse.Namespace) -> Objective:
    """Build the objective of a search over a model's calls.

    Raises :class:`UsageError` for a slowdown if memory is not the goal.
    """
    slowdown = _slowdown(choices.goal, choices.slowdown)
    return for_inference(choices.goal, slowdown=slowdown, p99_seconds=choices.p99)


def objective_from(choices: argparse.Namespace) -> Objective:
    """Build the objective of a search.

    Raises :class:`UsageError` for a slowdown if speed is the goal.
    """
    goal = getattr(choices, "goal", _GOALS[0])
    slowdown = _slowdown(goal, getattr(choices, "slowdown", None))
    if goal == "evaluation":
        return for_evaluation(slowdown)
    return for_memory(slowdown) if goal == "memory" else Objective()


def _slowdown(goal: str, given: float | None) -> float:
    if given is not None and goal not in _WITHIN_A_SLOWDOWN:
        raise UsageError(
            f"--slowdown has no effect when the goal is {goal}.", remedy="Add --goal memory, or leave it out."
        )
    return USUAL_SLOWDOWN if given is None else given


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
