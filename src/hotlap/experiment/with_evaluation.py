"""Where memory or evaluations are compared, each launch includes an evaluation of the script.

The peak of memory in an evaluation may be the peak of the run.
"""

from __future__ import annotations

from hotlap.experiment.trials import Trials
from hotlap.records import EVALUATION_SECONDS, PEAK_BYTES, AwaitEvaluation, Run

_USUAL_LAUNCHES = 25
_BUDGET_SHARE = 0.5
_PATIENCE = 3.0
"""A launch may take this many times as long to reach its evaluation as the first run took."""

TOO_LATE = (
    "The script evaluates too late for each trial to include an evaluation within the budget: peaks of memory are "
    "those of training steps."
)


TOO_LATE_TO_COMPARE = (
    "The script evaluates too late for each trial to include an evaluation within the budget, so that its evaluations "
    "cannot be compared. Use a larger --budget, or fewer steps between evaluations."
)
NO_EVALUATION = (
    "The script was not seen to evaluate between training steps, so that its evaluations cannot be compared. Use fewer "
    "steps before its first evaluation."
)


def await_evaluation(trials: Trials, run: Run) -> tuple[str, ...]:
    """Let trials of memory or of evaluations go on until the script has evaluated once, if the first run saw it.

    Returns warnings.
    """
    compares_evaluations = trials.options.objective.metric == EVALUATION_SECONDS
    if trials.options.objective.metric != PEAK_BYTES and not compares_evaluations:
        return ()
    if run.facts.evaluation is None:
        return (NO_EVALUATION,) if compares_evaluations else ()
    reached_seconds = max(1.0, run.wall_seconds - run.startup_seconds)
    budget_seconds = trials.options.budget_seconds
    if budget_seconds is not None and _USUAL_LAUNCHES * reached_seconds > _BUDGET_SHARE * budget_seconds:
        return (TOO_LATE_TO_COMPARE if compares_evaluations else TOO_LATE,)
    trials.instruments = (AwaitEvaluation(most_seconds=_PATIENCE * reached_seconds),)
    return ()
