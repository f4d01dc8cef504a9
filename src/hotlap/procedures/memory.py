"""Account for the memory of the unmodified script, by one launch that counts storages."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from hotlap.errors import ScriptError
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.observe import command_line, interpret
from hotlap.experiment.options import Options, check
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.stages import guarded, opened
from hotlap.experiment.trials import Trials
from hotlap.levers.api import all_levers
from hotlap.procedures.estimate import estimate_memory
from hotlap.records import AccountMemory, Observe, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

_OBSERVED_AFTER = 12
"""Steps after the counted ones: a script that ends before is too short."""


def account_memory(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Count the memory of the first steps of the script, and find what grows with every step.

    Raises as :func:`hotlap.procedures.search.tune` does, except that no budget is too small.
    """
    check(options, all_levers())
    trials, draft = opened(workload, options, executor, on_progress, journal, clock, kind="memory")
    return guarded(draft, lambda: _measure(trials, draft), lambda: draft.close("interrupted"))


def _measure(trials: Trials, draft: StudyDraft) -> None:
    draft.report("machine", "Its hardware, and the rates it reaches")
    machine = trials.executor.machine()
    draft.update(machine=machine)
    if trials.options.estimate is not None:
        draft.report("baseline", "The unmodified script on tensors without data")
        estimate_memory(trials, draft, machine, trials.options.estimate)
        draft.close("finished")
        return
    steps = trials.options.memory_steps
    draft.plan_ahead("machine", Forecast.of(Launches(1, None, f"to count the storages of {steps} steps")))
    draft.report("baseline", "The unmodified script, its storages counted")
    assignment = msgspec.structs.replace(trials.first_assignment(), instruments=(Observe(), AccountMemory(steps=steps)))
    run = trials.launch(assignment, steps=steps + _OBSERVED_AFTER)
    # Its step times are not measurements: counting makes them longer.
    draft.update(baseline=run, files=run.files, memory=run.memory)
    draft.warn(*run.notes)
    interpret(run, trials)
    if run.memory is None:
        raise ScriptError(
            "No training step of this script was seen to call its model.",
            where=command_line(trials.workload),
            remedy="Give hotlap the script, and the arguments, that train.",
        )
    if any(it.compiled for it in run.facts.models) or run.compile.graphs:
        draft.warn("Compiled code was counted as eager code, but a compiled graph frees and reuses memory differently.")
    draft.close("finished")
