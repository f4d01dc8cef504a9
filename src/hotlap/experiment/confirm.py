"""Confirm a gain by replicates of the reference, its repeat and the candidate, analysed after 3, 5 and 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.comparing import CANDIDATE, compare_replicates, comparison_of, with_load
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Trials
from hotlap.measure import speed
from hotlap.objective import NOTHING_USED
from hotlap.records import Comparison, CompileReport, Plan, Replicate, Run

OUT_OF_SIGHT_CONFIDENCE = 0.6
"""A trial ends for futility when the upper end of this interval is below the gain worth having."""

_OUT_OF_SIGHT_OF_SLOW_STARTS = 0.2
"""The same where each further replicate takes minutes: a little more than the estimate itself."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Replicates of three arms and their comparison. ``unfinished``: the budget ended the trial early."""

    comparison: Comparison
    replicates: tuple[Replicate, ...]
    unfinished: bool = False

    @property
    def candidate_run(self) -> Run:
        return self.replicates[-1].runs[CANDIDATE]

    @property
    def compile(self) -> CompileReport:
        """What compiling costs in the candidate's first run: the arms of the first replicate compile all."""
        return self.replicates[0].runs[CANDIDATE].compile


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

    Besides the rule of the analyses, a trial ends for futility: when the upper end of a 60 % interval (20 % if the
    script starts slowly) is below the gain worth having. That costs some power for small gains, and adds no false
    positives.
    """
    goal = trials.options.goal
    futile = _OUT_OF_SIGHT_OF_SLOW_STARTS if trials.starts_slowly else OUT_OF_SIGHT_CONFIDENCE

    def decided(replicates: Sequence[Replicate]) -> bool:
        usual = _comparison(trials, reference, candidate, replicates)
        if goal.is_decided(usual, len(replicates), used):
            return True
        # A narrow interval of the reference and its repeat would exclude zero by chance.
        at_a_glance = _comparison(trials, reference, candidate, replicates, futile)
        speed_at_a_glance = msgspec.structs.replace(at_a_glance.speed, baseline_agrees=usual.speed.baseline_agrees)
        return goal.is_out_of_reach(msgspec.structs.replace(at_a_glance, speed=speed_at_a_glance))

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
