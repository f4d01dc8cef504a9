"""The headline: the final plan against the untouched original, on fresh sets. The best of many looks better than it is,
so nothing that chose the plan is used again."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from hotlap import plan as plans_of
from hotlap.measure import speed
from hotlap.records import Comparison, ParityComparison, Plan, Run, TurnSet
from hotlap.tune.book import Book
from hotlap.tune.confirm import BASELINE, CANDIDATE, compare_sets, comparison_of, take_sets
from hotlap.tune.prove import Prover
from hotlap.tune.trials import Failure, Trials

MORE_SETS = speed.LOOKS[-1]
"""How far to go on when the first sets decide nothing, and the share of false alarms this second look may spend."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The comparison with the original, and the last run of each, taken side by side."""

    comparison: Comparison
    baseline_run: Run
    run: Run


def verification_cost(trials: Trials, prover: Prover | None, plan: Plan) -> float:
    """Seconds that the verification of this plan will take."""
    arms = [plans_of.EMPTY, plans_of.EMPTY, plan]
    proof = prover.cost(plan) if prover is not None and plan.settings else 0.0
    return speed.HEADLINE_SETS * trials.costs.of_set(arms, trials.rounds) + proof


def verify(
    trials: Trials, book: Book, prover: Prover, plan: Plan, parity: ParityComparison | None
) -> Verification | Failure:
    """Five fresh sets at 95 %; when these decide nothing and the budget allows it, eight.

    ``parity`` is what is already known of the whole plan; None when all its levers are exact, whose losses are compared
    in these very sets.
    """
    sets: list[TurnSet] = []
    failure = take_sets(trials, book, plans_of.EMPTY, plan, sets, upto=speed.HEADLINE_SETS, stage="verification")
    if failure is not None:
        return failure
    found = compare_sets(sets, delta=trials.options.delta, confidence=speed.HEADLINE_CONFIDENCE)
    more = (MORE_SETS.sets - len(sets)) * trials.costs.of_set([plans_of.EMPTY] * 2 + [plan], trials.rounds)
    if found.verdict == "inconclusive" and trials.fits(more):
        failure = take_sets(trials, book, plans_of.EMPTY, plan, sets, upto=MORE_SETS.sets, stage="verification")
        if failure is not None:
            return failure
        found = compare_sets(sets, delta=trials.options.delta, confidence=1 - MORE_SETS.alpha)
    comparison = comparison_of(plans_of.EMPTY, plan, sets, found)
    comparison = msgspec.structs.replace(comparison, parity=parity or prover.prove_exact(sets))
    return Verification(comparison, sets[-1].runs[BASELINE], sets[-1].runs[CANDIDATE])
