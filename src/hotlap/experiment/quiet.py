"""Measure on a quiet machine: repeat disturbed measurements, after a bounded wait.

Whether a measurement was disturbed follows from its own blocks (:mod:`hotlap.measure.disturbance`), so a resumed study
makes the same decisions. A machine that stays busy costs two waits and two measurements, and what could not be measured
undisturbed stays marked as disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure, ran_through
from hotlap.experiment.trials import Trials
from hotlap.records import Disturbance, Measurement, Replicate, Run, Stage

LONGEST_WAIT_SECONDS = 30.0
_WAIT_SHARE = 0.05
_AGAIN_SHARE = 0.25
"""The shares of a budget for one wait, and for all waits and the measurements after them together."""

Taken = TypeVar("Taken")


def patience_for(trials: Trials, cost_seconds: float) -> float:
    """How long to wait for other processes before repeating a measurement of ``cost_seconds``.

    0 if that does not fit into the budget, or if waiting failed too often.
    """
    if trials.waits_in_vain >= trials.most_waits:
        return 0.0
    budget = trials.options.budget_seconds
    if budget is None:
        return LONGEST_WAIT_SECONDS
    patience = min(LONGEST_WAIT_SECONDS, _WAIT_SHARE * budget)
    again_seconds = patience + cost_seconds
    affordable = trials.again_seconds + again_seconds <= _AGAIN_SHARE * budget and trials.fits(again_seconds)
    return patience if affordable else 0.0


def quietly(
    trials: Trials,
    draft: StudyDraft,
    measured: Measurement,
    take: Callable[[float], Taken],
    runs_of: Callable[[Taken], Sequence[Run]],
    *,
    stage: Stage,
    most_seconds: float | None = None,
) -> tuple[Taken, Disturbance | None]:
    """Measure with ``take``, and return the result with its disturbance.

    ``take`` gets how long to wait for other processes, and is called again while they disturb it, as long as patience
    and ``most_seconds`` allow; the least disturbed result counts. ``runs_of`` returns the runs behind it; none for a
    failure, which ends the calls.
    """
    before = trials.spent_seconds
    taken = take(0.0)
    cost_seconds = trials.spent_seconds - before
    found = trials.disturbance(measured, runs_of(taken))
    while found is not None and (patience := patience_for(trials, cost_seconds)):
        if most_seconds is not None and trials.spent_seconds - before + patience + cost_seconds > most_seconds:
            break
        draft.report(
            stage, f"While this was measured, {found.words}: measuring again once they pause (within {patience:.0f} s)"
        )
        began = trials.spent_seconds
        again = take(patience)
        trials.again_seconds += trials.spent_seconds - began
        runs = runs_of(again)
        if not runs or not all(map(ran_through, runs)):
            break
        better = trials.disturbance(measured, runs)
        if better is None:
            return again, None
        trials.waits_in_vain += 1
        if better.other_load < found.other_load:
            taken, found = again, better
    return taken, found


def runs_of_replicate(turns: Replicate | Failure) -> Sequence[Run]:
    """The runs of a replicate; none if it failed."""
    return () if isinstance(turns, Failure) else turns.runs
