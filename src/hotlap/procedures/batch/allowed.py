"""The batch size that a search for the fastest plan may try, where that is allowed: the knee, with advice."""

from __future__ import annotations

from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.observe import Observation
from hotlap.experiment.trials import Trials
from hotlap.levers.support.command_options import flag_value
from hotlap.procedures.batch.advice import note_advice
from hotlap.procedures.batch.search import find_knee, size_seconds
from hotlap.records import Machine, ProposedBatch


def propose_batch(trials: Trials, draft: StudyDraft, machine: Machine, observation: Observation) -> ProposedBatch:
    """Search for the knee of the unmodified script; propose it if it is faster by the smallest gain worth having."""
    flag = trials.options.batch.flag
    if flag and flag_value(trials.workload.arguments, flag) is None:
        return ProposedBatch(obstacle=f"Give the script its {flag} explicitly, so that a plan can replace its value.")
    found = find_knee(trials, draft, machine, observation, smaller=False)
    if found.obstacle:
        return ProposedBatch(obstacle=found.obstacle)
    larger = [it for it in found.rates if it.batch_size > found.own]
    if larger and all(it.error for it in larger):
        reason = f"No batch size larger than the script's own, {found.own}, could be timed. {larger[0].error}"
        if found.bound_by != "budget":
            return ProposedBatch(obstacle=reason)
        size, untimed_seconds = larger[0].batch_size, size_seconds(trials, larger[0].scale)
        return ProposedBatch(own=found.own, size=size, flag=flag, obstacle=reason, untimed_seconds=untimed_seconds)
    rate = found.rate_of(found.knee)
    if rate is None:
        return ProposedBatch(obstacle="No batch size could be timed.")
    if found.knee <= found.own or rate.throughput < 1 + trials.options.delta:
        return ProposedBatch(own=found.own, size=found.own, flag=flag)
    note_advice(trials, draft, observation, found.knee / found.own)
    return ProposedBatch(own=found.own, size=found.knee, flag=flag)
