"""Where memory is compared, each launch includes an evaluation of the script: its peak may be the peak of the run."""

from __future__ import annotations

from hotlap.experiment.trials import Trials
from hotlap.records import PEAK_BYTES, AwaitEvaluation, Run

_USUAL_LAUNCHES = 25
_BUDGET_SHARE = 0.5
_PATIENCE = 3.0
"""A launch may take this many times as long to reach its evaluation as the first run took."""

TOO_LATE = (
    "The script evaluates too late for each trial to include an evaluation within the budget: peaks of memory are "
    "those of training steps."
)


def await_evaluation(trials: Trials, run: Run) -> tuple[str, ...]:
    """Let trials of memory go on until the script has evaluated once, if the first run saw it; return warnings."""
    if trials.options.objective.metric != PEAK_BYTES or run.facts.evaluation is None:
        return ()
    reached_seconds = max(1.0, run.wall_seconds - run.startup_seconds)
    budget_seconds = trials.options.budget_seconds
    if budget_seconds is not None and _USUAL_LAUNCHES * reached_seconds > _BUDGET_SHARE * budget_seconds:
        return (TOO_LATE,)
    trials.instruments = (AwaitEvaluation(most_seconds=_PATIENCE * reached_seconds),)
    return ()
