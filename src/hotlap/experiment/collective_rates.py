"""Measure collectives between as many idle processes of this machine as the script has ranks."""

from __future__ import annotations

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.trials import Trials
from hotlap.records import CollectiveRates, CollectivesRequest, ScriptFacts

MEASURING_SECONDS = 25.0
"""Starting processes that import torch, and timing their collectives."""


def measured_rates(trials: Trials, draft: StudyDraft, facts: ScriptFacts, *, budget_share: float) -> CollectiveRates:
    """The rates of a script of several ranks; with ``error`` where there are none, which is also a warning.

    For one process, and for a quick look, the error is empty. ``budget_share`` is how much of a budget it may take.
    """
    if facts.processes < 2 or trials.options.quick:
        return CollectiveRates()
    budget = trials.options.budget_seconds
    if budget is not None and budget_share * budget < MEASURING_SECONDS:
        rates = CollectiveRates(error="The budget is too small to measure them.")
    else:
        draft.report("profile", "Collectives between processes of this machine")
        device = "cpu" if facts.device.partition(":")[0] == "cpu" else "cuda"
        rates = trials.executor.collectives(CollectivesRequest(processes=facts.processes, device=device))
    if rates.error:
        draft.warn(f"Collectives between ranks were not measured. {rates.error}")
    return rates
