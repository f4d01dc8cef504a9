"""Measure collectives between as many idle processes of this machine as the script has ranks."""

from __future__ import annotations

from typing import get_args

import msgspec

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.trials import Trials
from hotlap.records import CollectiveRates, CollectivesRequest, MeasuredOptimizer, ScriptFacts, TrainedParts

MEASURING_SECONDS = 30.0
"""Starting processes that import torch, and timing their collectives."""


def collectives_request(facts: ScriptFacts, processes: int, parameters_per_part: int = 0) -> CollectivesRequest:
    """A request for so many processes that compute where the script does. On the processor it asks also for what
    strategies do with parts as the script's, of so many parameters (0: unknown)."""
    if facts.device.partition(":")[0] != "cpu":
        return CollectivesRequest(processes=processes, device="cuda")
    return CollectivesRequest(processes=processes, parts=_parts(facts, parameters_per_part))


def _parts(facts: ScriptFacts, parameters: int) -> TrainedParts:
    parts = TrainedParts()
    if parameters:
        parts = msgspec.structs.replace(parts, parameters=parameters)
    for it in facts.optimizers[:1]:
        if it.from_torch and it.kind in get_args(MeasuredOptimizer):
            return msgspec.structs.replace(parts, optimizer=it.kind, fused=it.fused, foreach=it.foreach)
    return parts


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
        rates = trials.executor.collectives(collectives_request(facts, facts.processes))
    if rates.error:
        draft.warn(f"Collectives between ranks were not measured. {rates.error}")
    return rates
