"""A study without trials: the time account of a step, its ceilings, and its bottlenecks."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from hotlap.experiment import loader_alone
from hotlap.experiment.ceilings import measure_ceilings, note_bounds
from hotlap.experiment.collective_rates import measured_rates
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.findings import note_findings
from hotlap.experiment.options import Options, check
from hotlap.experiment.plan_ahead import Forecast
from hotlap.experiment.profiled_launch import take_profile, usual_length
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Trials
from hotlap.levers.api import all_levers
from hotlap.procedures.batch.model_alone import measure_batch_sizes, sizes_launches
from hotlap.procedures.forecast import profile_launch, stages
from hotlap.records import Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

_RATES_SHARE = 0.25
"""The largest share of a budget for measuring collectives."""


def profile(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Profile the unmodified script and explain where the time of its steps goes; try no lever.

    What a budget does not allow is left out, with a warning; the profiled launch has priority over the ceilings.
    Raises as :func:`hotlap.procedures.search.tune` does, except that no budget is too small.
    """
    check(options, all_levers())
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="profile")
    return guarded(draft, lambda: _measure(trials, draft), lambda: draft.close("interrupted"))


def _measure(trials: Trials, draft: StudyDraft) -> None:
    machine, observation = begin(trials, draft, on_free_cores=True)
    sizes = sizes_launches(trials, observation) if trials.options.batch_sizes else ()
    draft.plan_ahead("baseline", Forecast.of(*stages(trials, observation, machine), *sizes))
    trials.reserve_seconds = usual_length(trials).seconds(trials)
    bounds = measure_ceilings(trials, draft, observation, machine)
    trials.reserve_seconds = 0.0
    note_bounds(draft, bounds)
    draft.plan_ahead("profile", Forecast.of(profile_launch(trials, loader_alone.seconds_of(bounds.to_sweep)), *sizes))
    known, _ = take_profile(trials, draft, observation, bounds)
    between_ranks = measured_rates(trials, draft, observation.facts, budget_share=_RATES_SHARE)
    known = msgspec.structs.replace(known, measured_rates=between_ranks.rates)
    note_findings(draft, known, advises=True)
    if trials.options.batch_sizes:
        rates = measure_batch_sizes(trials, draft, observation, machine)
        draft.update(batch_rates=rates)
        note_findings(draft, msgspec.structs.replace(known, batch_rates=rates), advises=True)
    draft.close("finished")
