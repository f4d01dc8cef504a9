"""Is it really better? Replicates of the reference, the reference again, and the candidate; looks at 3, 5 and 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hotlap import plan as plans_of
from hotlap.experiment.comparing import CANDIDATE, compare_sets, comparison_of
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Failure, Trials
from hotlap.measure import speed
from hotlap.objective import NOTHING_USED
from hotlap.records import Comparison, Plan, Run, TurnSet

_OUT_OF_SIGHT_CONFIDENCE = 0.6


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Sets of three arms and what they say. ``unfinished`` tells that the budget ended the looks early."""

    comparison: Comparison
    sets: tuple[TurnSet, ...]
    unfinished: bool = False

    @property
    def candidate_run(self) -> Run:
        return self.sets[-1].runs[CANDIDATE]


def first_look_cost(trials: Trials, reference: Plan, candidate: Plan, rounds: int) -> float:
    """Seconds until the first look can decide anything."""
    return trials.replicates_seconds([reference, reference, candidate], speed.LOOKS[0].sets, rounds)


def confirm(
    trials: Trials,
    draft: StudyDraft,
    reference: Plan,
    candidate: Plan,
    *,
    lever: str,
    used: Mapping[str, float] = NOTHING_USED,
) -> Confirmation | Failure:
    """Take replicates until a look decides; ``used`` is what the reference takes of what is limited.

    Besides the looks' own rule a trial ends when the gain worth having is out of reach: when even the upper end of a
    60 % interval lies below it. That gives up some power for small gains, and adds no false alarm.
    """
    goal = trials.options.goal

    def decided(sets: Sequence[TurnSet]) -> bool:
        if goal.is_decided(_comparison(trials, reference, candidate, sets), len(sets), used):
            return True
        at_a_glance = _comparison(trials, reference, candidate, sets, _OUT_OF_SIGHT_CONFIDENCE)
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
    comparison = _comparison(trials, reference, candidate, found.sets)
    return Confirmation(comparison, found.sets, unfinished=found.unfinished)


def _comparison(
    trials: Trials, reference: Plan, candidate: Plan, sets: Sequence[TurnSet], confidence: float | None = None
) -> Comparison:
    """With the confidence that the look at so many sets demands, unless another is asked for."""
    confidence = confidence or 1 - speed.alpha_at(len(sets))
    found = compare_sets(sets, delta=trials.options.delta, confidence=confidence)
    return comparison_of(reference, candidate, sets, found)
