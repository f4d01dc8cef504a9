"""The headline: the final plan against the untouched original, on fresh sets. The best of many looks better than it is,
so nothing that chose the plan is used again."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from hotlap import plan as plans_of
from hotlap.experiment.book import Book
from hotlap.experiment.confirm import BASELINE, CANDIDATE, compare_sets, comparison_of, take_sets
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.prove import Prover
from hotlap.experiment.trials import Failure, Trials
from hotlap.measure import speed
from hotlap.objective import judge
from hotlap.records import Comparison, ParityComparison, Plan, Run, TurnSet

MORE_SETS = speed.LOOKS[-1]
"""How far to go on when the first sets decide nothing, and the share of false alarms this second look may spend."""

_LAST_RESORT_ROUNDS = 5
"""Fewer than usual, where nothing more fits: a verification with a wide interval is better than none."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison with the original, and the last run of each, taken side by side."""

    comparison: Comparison
    baseline_run: Run
    run: Run
    sets: tuple[TurnSet, ...]

    def with_parity(self, parity: ParityComparison) -> Verification:
        """The same with what is known of the numbers."""
        return replace(self, comparison=msgspec.structs.replace(self.comparison, parity=parity))


def verification_cost(trials: Trials, prover: Prover | None, plan: Plan, rounds: int | None = None) -> float:
    """Seconds that the verification of this plan will take, with so many rounds (by default as many as now)."""
    arms = [plans_of.EMPTY, plans_of.EMPTY, plan]
    proof = prover.cost(plan) if prover is not None and plan.settings else 0.0
    return speed.HEADLINE_SETS * trials.costs.of_set(arms, rounds or trials.rounds) + proof


def can_verify(trials: Trials, prover: Prover, plan: Plan) -> bool:
    """Whether the verification still fits, with few rounds if need be: what was kept for it was only an estimate."""
    return trials.fits(verification_cost(trials, prover, plan, min(trials.rounds, _LAST_RESORT_ROUNDS)))


def _fit_rounds(trials: Trials, plan: Plan, sets: int) -> None:
    """Fewer rounds where the sets that are left would otherwise take longer than there is time."""
    arms = [plans_of.EMPTY, plans_of.EMPTY, plan]
    for rounds in (trials.rounds, FEWEST_ROUNDS, _LAST_RESORT_ROUNDS):
        if rounds <= trials.rounds and trials.fits(sets * trials.costs.of_set(arms, rounds)):
            trials.rounds = rounds
            return


def verify(
    trials: Trials, book: Book, prover: Prover, plan: Plan, parity: ParityComparison | None
) -> Verification | Failure:
    """Five fresh sets at 95 %; when these decide nothing and the budget allows it, eight.

    ``parity`` is what is already known of the whole plan; None when all its levers are exact, whose losses are compared
    in these very sets. A Failure that is ``cut`` is no failure of the plan: the budget ended first.
    """
    measured = measure_plan(trials, book, plan)
    if isinstance(measured, Failure):
        return measured
    return measured.with_parity(parity or prover.prove_exact(measured.sets))


def measure_plan(trials: Trials, book: Book, plan: Plan) -> Verification | Failure:
    """What the objective asks for, without a proof of sameness."""
    sets: list[TurnSet] = []
    while len(sets) < speed.HEADLINE_SETS:
        _fit_rounds(trials, plan, speed.HEADLINE_SETS - len(sets))
        failure = take_sets(
            *(trials, book, plans_of.EMPTY, plan, sets),
            upto=len(sets) + 1,
            planned=speed.HEADLINE_SETS,
            stage="verification",
        )
        if failure is not None:
            return failure
    comparison = _compared(trials, plan, sets, speed.HEADLINE_CONFIDENCE)
    more = (MORE_SETS.sets - len(sets)) * trials.costs.of_set([plans_of.EMPTY] * 2 + [plan], trials.rounds)
    if judge(trials.options.objective, comparison).verdict == "inconclusive" and trials.fits(more):
        failure = take_sets(trials, book, plans_of.EMPTY, plan, sets, upto=MORE_SETS.sets, stage="verification")
        if failure is not None:
            return failure
        comparison = _compared(trials, plan, sets, 1 - MORE_SETS.alpha)
    return Verification(comparison, sets[-1].runs[BASELINE], sets[-1].runs[CANDIDATE], tuple(sets))


def _compared(trials: Trials, plan: Plan, sets: list[TurnSet], confidence: float) -> Comparison:
    found = compare_sets(sets, delta=trials.options.delta, confidence=confidence)
    return comparison_of(plans_of.EMPTY, plan, sets, found)
