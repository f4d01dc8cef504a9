"""The headline: the final plan against the untouched original, on fresh sets. The best of many looks better than it is,
so nothing that chose the plan is used again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.comparing import BASELINE, CANDIDATE, compare_parts, compare_sets, comparison_of
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.prove import Prover
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Failure, Trials
from hotlap.measure import speed
from hotlap.objective import judge, p99_state
from hotlap.records import Comparison, Plan, Quality, Run, TurnSet

MORE_SETS = speed.LOOKS[-1]
"""How far to go on when the first sets decide nothing, and the share of false alarms this second look may spend."""

_LAST_RESORT_ROUNDS = 5
"""Fewer than usual, where nothing more fits: a verification with a wide interval is better than none."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison with the original, and the last run of each, taken side by side. ``parts`` are the levers that the
    plan was also launched without: the plan without each, against the plan."""

    comparison: Comparison
    baseline_run: Run
    run: Run
    sets: tuple[TurnSet, ...]
    parts: Mapping[str, Comparison] = field(default_factory=dict)

    def with_quality(self, quality: Quality) -> Verification:
        """The same with what is known of the numbers."""
        return replace(self, comparison=msgspec.structs.replace(self.comparison, quality=quality))


def verification_cost(
    trials: Trials, prover: Prover | None, plan: Plan, rounds: int | None = None, *, without: Sequence[str] = ()
) -> float:
    """Seconds that the verification of this plan will take, with so many rounds (by default as many as now)."""
    arms = _arms(plan, without)
    proof = prover.cost(plan) if prover is not None and plan.settings else 0.0
    return trials.replicates_seconds(arms, speed.HEADLINE_SETS, rounds or trials.rounds) + proof


def can_verify(trials: Trials, prover: Prover, plan: Plan) -> bool:
    """Whether the verification still fits, with few rounds if need be: what was kept for it was only an estimate."""
    return trials.fits(verification_cost(trials, prover, plan, min(trials.rounds, _LAST_RESORT_ROUNDS)))


def _arms(plan: Plan, without: Sequence[str]) -> list[Plan]:
    return [plans_of.EMPTY, plans_of.EMPTY, plan, *(plans_of.without(plan, it) for it in without)]


def _fit_rounds(trials: Trials, arms: Sequence[Plan], sets: int) -> None:
    """Fewer rounds where the sets that are left would otherwise take longer than there is time."""
    for rounds in (trials.rounds, FEWEST_ROUNDS, _LAST_RESORT_ROUNDS):
        if rounds <= trials.rounds and trials.fits(trials.replicates_seconds(arms, sets, rounds)):
            trials.rounds = rounds
            return


def verify(
    trials: Trials, draft: StudyDraft, prover: Prover, plan: Plan, quality: Quality | None
) -> Verification | Failure:
    """Five fresh sets at 95 %; when these decide nothing and the budget allows it, eight.

    ``quality`` is what is already known of the whole plan; None when all its levers are exact, whose losses these very
    sets compare. A Failure that is ``cut`` is no failure of the plan: the budget ended first.
    """
    measured = measure_plan(trials, draft, plan)
    if isinstance(measured, Failure):
        return measured
    return measured.with_quality(quality or prover.prove_exact(measured.sets))


def measure_plan(trials: Trials, draft: StudyDraft, plan: Plan, without: Sequence[str] = ()) -> Verification | Failure:
    """What the objective asks for, without a proof of sameness. In the same replicates the plan is launched without
    each of the levers ``without``, which shows what each gives next to the others."""
    arms = _arms(plan, without)

    def goes_on(to_come: int) -> bool:
        _fit_rounds(trials, arms, to_come)
        return True

    def decided(sets: Sequence[TurnSet]) -> bool:
        objective, found = trials.options.objective, _compared(trials, plan, sets)
        is_open = p99_state(objective, found.candidate_latency) == "open"
        return judge(objective, found).verdict != "inconclusive" and not is_open

    design = Design(
        arms=arms,
        purpose=f"verification {plans_of.key(plans_of.EMPTY)} {plans_of.key(plan)}",
        looks=(speed.HEADLINE_SETS, MORE_SETS.sets),
        goes_on=goes_on,
        stage="verification",
        label="the whole plan",
    )
    found = replicate(trials, draft, design, decided)
    if found.failure is not None:
        return found.failure
    last = found.sets[-1].runs
    whole = _compared(trials, plan, found.sets)
    parts = {it: _part(trials, found.sets, arms, arm) for arm, it in enumerate(without, start=CANDIDATE + 1)}
    return Verification(whole, last[BASELINE], last[CANDIDATE], found.sets, parts)


def _part(trials: Trials, sets: Sequence[TurnSet], arms: Sequence[Plan], arm: int) -> Comparison:
    """The plan against itself without a lever, which is the arm ``arm``."""
    confidence = speed.HEADLINE_CONFIDENCE
    found = compare_parts(
        sets, delta=trials.options.delta, confidence=confidence, reference_arm=arm, candidate_arm=CANDIDATE
    )
    return comparison_of(arms[arm], arms[CANDIDATE], sets, found, reference_arm=arm)


def _compared(trials: Trials, plan: Plan, sets: Sequence[TurnSet]) -> Comparison:
    """At 95 %, or where the first look decided nothing with what the second may spend."""
    confidence = speed.HEADLINE_CONFIDENCE if len(sets) <= speed.HEADLINE_SETS else 1 - MORE_SETS.alpha
    found = compare_sets(sets, delta=trials.options.delta, confidence=confidence)
    return comparison_of(plans_of.EMPTY, plan, sets, found)
