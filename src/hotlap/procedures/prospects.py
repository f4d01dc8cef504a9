"""Which levers arithmetic allows to be worth a trial, with which settings, and in which order.

What it allows is measured once, by :mod:`hotlap.procedures.screen`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotlap.diagnose.api import Group
from hotlap.experiment.ceilings import COMPUTE, answers_only
from hotlap.experiment.findings import precedence
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.objective import PEAKS, WITHIN_A_SLOWDOWN
from hotlap.records import (
    MEDIAN_CALL_SECONDS,
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Finding,
    Objective,
    Outcome,
    Setting,
    Situation,
    Skipped,
)
from hotlap.wording import metric_words

USUAL_LAUNCH_NOISE = 0.03
"""The noise of a single replicate until this study has measured its own: launches of the same code differ by 2 to 6 %,
of which taking turns removes the machine's share."""

_DATA: frozenset[Group] = frozenset({"data"})


@dataclass(frozen=True, slots=True)
class Prospect:
    """A lever that may be tried, with its settings, the most promising first."""

    lever: Lever
    settings: tuple[Setting, ...]
    bound: float | None


def prospects_of(
    levers: Iterable[Lever], situation: Situation, options: Options, findings: Sequence[Finding] = ()
) -> tuple[list[Prospect], list[Outcome]]:
    """The levers worth screening, in order; the others are decided with a reason.

    Those that address a finding come first, by the cost of the finding; the rest by their bounds, best first.
    """
    found: list[Prospect] = []
    passed_over: list[Outcome] = []
    for lever in levers:
        reason = _reason_to_skip(lever, situation, options)
        if reason is not None:
            passed_over.append(Outcome(lever=lever.name, verdict=reason))
            continue
        bound = bound_of(lever, situation) if options.goal.is_of_speed else None
        found.append(Prospect(lever, _settings(lever, situation, options), bound))
    found.sort(key=lambda it: (*precedence(findings, it.lever.name), it.bound or math.inf), reverse=True)
    return found, passed_over


def bound_of(lever: Lever, situation: Situation) -> float | None:
    """The largest possible speedup of the lever here: its own bound, or a lower measured ceiling.

    A lever that only speeds up the computation cannot exceed the loader's rate; one that only speeds up the loader,
    on a CPU where nothing is copied, cannot exceed the model's. The rules that a lever addresses show what it speeds
    up, unless it also sets variables, which reach every process. A ceiling is extended by the noise of single launches.
    """
    bounds = [lever.bound(situation)]
    everywhere = any(lever.environment(it) for it in lever.candidates(situation))
    for ceiling in () if everywhere else situation.ceilings:
        is_compute = ceiling.name == "loader-alone" and answers_only(lever, COMPUTE)
        is_loader = ceiling.name == "model-alone" and answers_only(lever, _DATA) and situation.facts.device == "cpu"
        if ceiling.bound_speedup is not None and (is_compute or is_loader):
            bounds.append(ceiling.bound_speedup * (1 + USUAL_LAUNCH_NOISE))
    return min((it for it in bounds if it is not None), default=None)


def _reason_to_skip(lever: Lever, situation: Situation, options: Options) -> Skipped | None:
    obstacle = lever.obstacle(situation)
    if obstacle is not None:
        return obstacle
    if lever.lengthens_calls and _is_of_single_calls(options.objective):
        return Skipped(reason="Its inputs wait for one another, and the objective is about the time of single calls.")
    if not lever.candidates(situation):
        return Skipped(reason="No setting of it fits this script and machine.")
    if not _settings(lever, situation, options):
        return Skipped(reason=f"It changes what is learned, so it is only tried with --allow {lever.name}.")
    if not _may_improve(lever, options.objective.metric):
        what = metric_words(options.objective.metric)
        return Skipped(reason=f"It is not tried for the {what}.{_other_goal(lever, options)}")
    bound = bound_of(lever, situation) if options.goal.is_of_speed else None
    if bound is not None and bound < 1 + options.delta:
        text = (
            f"It could give {bound:.3f}x at most, less than the smallest gain worth having, {1 + options.delta:.3g}x."
        )
        return Skipped(reason=text, bound=bound)
    return None


def _is_of_single_calls(objective: Objective) -> bool:
    return objective.metric == MEDIAN_CALL_SECONDS or objective.p99_seconds is not None


def _other_goal(lever: Lever, options: Options) -> str:
    """Which goal the lever is tried for, if speed is the present one."""
    if options.objective.metric != SECONDS_PER_SAMPLE:
        return ""
    goals = [goal for metric, goal in WITHIN_A_SLOWDOWN.items() if metric in lever.improves]
    return f" `--goal {goals[0]}` tries it." if goals else ""


def _may_improve(lever: Lever, metric: str) -> bool:
    names = {MEDIAN_CALL_SECONDS: SECONDS_PER_SAMPLE, **dict.fromkeys(PEAKS, PEAK_BYTES)}
    return metric in lever.improves or names.get(metric) in lever.improves


def _settings(lever: Lever, situation: Situation, options: Options) -> tuple[Setting, ...]:
    """The lever's candidates without those that change what is learned, unless allowed by name."""
    allowed = lever.name in options.allow
    return tuple(it for it in lever.candidates(situation) if allowed or lever.proof_for(situation, it) != "behaviour")
