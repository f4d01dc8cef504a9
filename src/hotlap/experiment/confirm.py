"""Confirm a gain by replicates of the reference, its repeat and the candidate, analysed after 3, 5 and 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.comparing import CANDIDATE, compare_replicates, comparison_of, with_load
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.objective import NOTHING_USED
from hotlap.records import Comparison, Plan, Replicate, Run

OUT_OF_SIGHT_CONFIDENCE = 0.6
"""A trial ends for futility when the upper end of this interval is below the gain worth having."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Replicates of three arms and their comparison. ``unfinished``: the budget ended the trial early."""

    comparison: Comparison
    replicates: tuple[Replicate, ...]
    unfinished: bool = False

    @property
    def candidate_run(self) -> Run:
        return self.replicates[-1].runs[CANDIDATE]


def first_analysis_cost(trials: Trials, reference: Plan, candidate: Plan, rounds: int) -> float:
    """Seconds until the first analysis can decide."""
    return trials.replicates_seconds([reference, reference, candidate], speed.ANALYSES[0].replicates, rounds)


def confirm(
    trials: Trials,
    draft: StudyDraft,
    reference: Plan,
    candidate: Plan,
    *,
    lever: str,
    used: Mapping[str, float] = NOTHING_USED,
) -> Confirmation | Failure:
    """Take replicates until an analysis decides; ``used`` is the reference's use of what is limited.

    Besides the rule of the analyses, a trial ends for futility: when the upper end of a 60 % interval is below the gain
    worth having. That costs some power for small gains, and adds no false positives.
    """
    goal = trials.options.goal

    def decided(replicates: Sequence[Replicate]) -> bool:
        if goal.is_decided(_comparison(trials, reference, candidate, replicates), len(replicates), used):
            return True
        at_a_glance = _comparison(trials, reference, candidate, replicates, OUT_OF_SIGHT_CONFIDENCE)
        return goal.is_out_of_reach(at_a_glance)

    design = Design(
        arms=(reference, reference, candidate),
        purpose=f"trial {plans_of.key(reference)} {plans_of.key(candidate)}",
        adapts_rounds=True,
        label=lever,
        lever=lever,
    )
    found = replicate(trials, draft, design, decided)
    if found.failure is not None:
        return found.failure
    comparison = _comparison(trials, reference, candidate, found.replicates)
    comparison = with_load(comparison, found.replicates, trials.options.objective)
    return Confirmation(comparison, found.replicates, unfinished=found.unfinished)


def _comparison(
    trials: Trials, reference: Plan, candidate: Plan, replicates: Sequence[Replicate], confidence: float | None = None
) -> Comparison:
    """Compare with the confidence of the analysis of so many replicates, unless another is given."""
    confidence = confidence or 1 - speed.alpha_at(len(replicates))
    found = compare_replicates(replicates, delta=trials.options.delta, confidence=confidence)
    return comparison_of(reference, candidate, replicates, found)
