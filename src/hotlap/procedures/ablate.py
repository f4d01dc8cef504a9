"""Ablation: compare the full plan with itself without each lever in turn.

A lever that gained early may contribute nothing once others are on. It is dropped if the plan without it is as fast; if
its own trial did not survive the correction for the number of levers tried (Holm), only a clear loss keeps it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.comparing import compare_replicates, comparison_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.replicates import Design, anything, replicate
from hotlap.experiment.trials import FEWEST_ARMS, Trials
from hotlap.measure import speed
from hotlap.objective import gain, inverse, judge, metric_of
from hotlap.records import Comparison, Objective, Plan, Replicate
from hotlap.wording import metric_words

_REPLICATES = speed.ANALYSES[0].replicates
_MARGIN = 1.5
"""Costs are estimates, and verification matters more than ablation."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A dropped lever, and the comparison of the plan without it with the plan with it (None: no budget)."""

    lever: str
    comparison: Comparison | None
    reason: str


def ablate(
    trials: Trials, draft: StudyDraft, plan: Plan, doubtful: Collection[str], *, among: Collection[str]
) -> tuple[Plan, list[Dropped]]:
    """Return the remaining plan, and what was dropped ``among`` these levers.

    The least useful lever is dropped first, then all others are compared again: each of two levers may be useless only
    because of the other.
    """
    dropped: list[Dropped] = []
    while len(plan.settings) > 1:
        found = _round(trials, draft, plan, among)
        if found is None:
            return _without_doubtful(draft, plan, doubtful, dropped)
        idle = [lever for lever, it in found.items() if not _earns_its_place(it, trials, lever in doubtful)]
        if not idle:
            break
        worst = max(idle, key=lambda lever: _gain_without(trials, found[lever]))
        dropped.append(Dropped(worst, found[worst], _reason(trials, found[worst], worst in doubtful)))
        plan = plans_of.without(plan, worst)
        if len(idle) == 1:
            break
    return plan, dropped


def _round(trials: Trials, draft: StudyDraft, plan: Plan, among: Collection[str]) -> dict[str, Comparison] | None:
    """Leave each lever out once; None if the budget or a failure prevents it."""
    levers = [it.lever for it in plan.settings if it.lever in among]
    at_once = max(1, trials.arms_at_once - 2)
    groups = [levers[start : start + at_once] for start in range(0, len(levers), at_once)]
    found: dict[str, Comparison] = {}
    for group in groups:
        arms = [plan, plan, *(plans_of.without(plan, it) for it in group)]
        replicates = _replicates(trials, draft, arms, group)
        if replicates is None:
            return None
        for arm, lever in enumerate(group, start=2):
            confidence = 1 - speed.alpha_at(len(replicates))
            without = compare_replicates(
                replicates, delta=trials.options.delta, confidence=confidence, arms=(0, 1, arm)
            )
            found[lever] = comparison_of(plan, arms[arm], replicates, without, candidate_arm=arm)
    return found


def _replicates(
    trials: Trials, draft: StudyDraft, arms: Sequence[Plan], group: Sequence[str]
) -> Sequence[Replicate] | None:
    def fits(to_come: int) -> bool:
        """Whether the replicates fit, without using the share of the verification."""
        first = to_come == _REPLICATES
        return trials.fits(trials.replicates_seconds(arms, to_come, trials.rounds, compiles_all=first))

    if not trials.fits(_MARGIN * trials.replicates_seconds(arms, _REPLICATES, trials.rounds)):
        return None
    names = ", ".join(group)
    design = Design(
        arms=arms,
        purpose=f"ablation {plans_of.key(arms[0])} {names}",
        analyses=(_REPLICATES,),
        accept=anything,
        goes_on=fits,
        compares=False,
        stage="ablation",
        label=f"Without {names}",
    )
    found = replicate(trials, draft, design)
    if found.failure is not None and not found.failure.cut:
        if len(arms) > FEWEST_ARMS:
            trials.arms_at_once = FEWEST_ARMS
        draft.warn(f"It could not be checked whether each lever is still needed. {found.failure.reason}")
    return found.replicates or None


def _earns_its_place(without: Comparison, trials: Trials, is_doubtful: bool) -> bool:
    """Whether the plan is worse without the lever.

    For a lever whose own trial is significant the estimate suffices. A lever that keeps the plan within a limit counts
    as needed too.
    """
    objective = trials.options.objective
    limited = [metric_of(without, it.metric) for it in objective.limits]
    if any(it is not None and it.verdict == "worse" for it in limited):
        return True
    verdict = judge(Objective(metric=objective.metric), without).verdict
    if verdict == "worse":
        return True
    if verdict in ("better", "no-effect") or is_doubtful:
        return False
    return -math.log(_gain_without(trials, without)) >= math.log1p(trials.options.goal.delta)


def _gain_without(trials: Trials, without: Comparison) -> float:
    found = gain(trials.options.objective, without)
    return found.value if found is not None else 1.0


def _reason(trials: Trials, without: Comparison, is_doubtful: bool) -> str:
    objective = trials.options.objective
    found = gain(objective, without)
    if trials.options.goal.is_of_speed or found is None:
        ratio, of_what = without.speed.speedup, "runs at {} of its speed"
    else:
        ratio, of_what = inverse(found), f"takes {{}} of its {metric_words(objective.metric)}"
    level = f"{ratio.value:.3f}x ({ratio.low:.3f} to {ratio.high:.3f})"
    text = f"It gained on its own, but the full plan without it {of_what.format(level)}, so it was dropped."
    if is_doubtful:
        text += " Its own trial is not significant for the number of levers that were tried."
    return text


def _without_doubtful(
    draft: StudyDraft, plan: Plan, doubtful: Collection[str], dropped: list[Dropped]
) -> tuple[Plan, list[Dropped]]:
    """Without fresh evidence, keep only levers whose own trials are significant for the number of levers tried."""
    draft.warn("It was not checked whether each kept lever is still needed next to the others.")
    for lever in [it.lever for it in plan.settings if it.lever in doubtful]:
        reason = "Its trial is not significant for the number of levers that were tried."
        dropped.append(Dropped(lever, None, reason))
        plan = plans_of.without(plan, lever)
    return plan, dropped
