"""What all studies share: their first stages, and that they are closed and saved however they end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hotlap.errors import BudgetError, ScriptError
from hotlap.experiment.costs import Costs
from hotlap.experiment.draft import OnProgress, StudyDraft
from hotlap.experiment.free_cores import with_threads_that_fit
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.observe import Observation, first_run, interpret
from hotlap.experiment.options import Options
from hotlap.experiment.quiet import quietly
from hotlap.experiment.trials import Trials
from hotlap.experiment.with_evaluation import await_evaluation
from hotlap.measure.disturbance import disturbance_of_rates
from hotlap.measure.run_account import run_account
from hotlap.records import Machine, Study, StudyKind, Workload
from hotlap.redact import redacted, redacted_text
from hotlap.study import Journal
from hotlap.trial.executor import Executor


def blank_study(workload: Workload, options: Options, journal: Journal | None) -> Study:
    """A study without results."""
    study = Study(
        workload=redacted(workload),
        objective=options.objective,
        budget_seconds=options.budget_seconds,
        quick=options.quick,
        narrowed_by=options.which_levers,
        repeated_options=tuple(map(redacted_text, options.repeated)),
    )
    if journal is None:
        return study
    header = journal.header
    return msgspec.structs.replace(
        study,
        identifier=header.identifier,
        hotlap_version=header.hotlap_version,
        started=header.started,
        source=header.source,
        directory=str(journal.directory),
    )


def opened(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress,
    journal: Journal | None,
    clock: Callable[[], float],
    *,
    kind: StudyKind = "search",
) -> tuple[Trials, StudyDraft]:
    """The trials and the study of a procedure."""
    trials = Trials(workload, options, JournaledExecutor(executor, journal, clock=clock))
    trials.step_source = "call" if kind == "inference" else trials.step_source
    blank = msgspec.structs.replace(blank_study(workload, options, journal), kind=kind)
    draft = StudyDraft(blank, trials, journal, on_progress)
    if kind != "search":
        draft.update()  # a study that is killed at once must be resumed as what it is
    return trials, draft


def guarded(draft: StudyDraft, work: Callable[[], None], interrupted: Callable[[], None]) -> Study:
    """Run the procedure; close and save the study however it ends."""
    try:
        work()
    except KeyboardInterrupt:
        interrupted()
    except ScriptError as error:
        draft.close("script-failed", error.what)
        raise
    except BudgetError as error:
        draft.close("out-of-budget", error.what)
        raise
    return draft.study


def begin(trials: Trials, draft: StudyDraft, *, on_free_cores: bool = False) -> tuple[Machine, Observation]:
    """Run the first stages of every study: examine the machine, and run the unmodified script.

    With ``on_free_cores`` the script gets fewer threads if other processes do not pause. Raises :class:`ScriptError` as
    :func:`hotlap.experiment.observe.interpret` does.
    """
    draft.report("machine", "Its hardware, and the rates it reaches")
    machine = trials.executor.machine()
    draft.update(machine=machine)
    draft.warn(*machine.warnings)
    draft.report("baseline", "Its steps, losses and settings")
    trials.cores = machine.cores
    trials.most_waits = 1 if on_free_cores else trials.most_waits
    draft.disturbed("matmul", disturbance_of_rates(machine))
    run, disturbed = quietly(
        trials, draft, "account", lambda patience: first_run(trials, patience), lambda run: [run], stage="baseline"
    )
    if disturbed is not None and on_free_cores:
        run, disturbed = with_threads_that_fit(trials, draft, run, disturbed)
    draft.update(baseline=run, files=run.files)
    draft.disturbed("account", disturbed)
    draft.warn(*run.notes)
    observation = interpret(run, trials)
    trials.costs = Costs(
        run.startup_seconds,
        observation.shape,
        cores=machine.cores,
        slow_levers=trials.slow_levers,
        beside_code=trials.levers_beside_code,
    )
    trials.fit_arms(machine, run)
    draft.warn(*await_evaluation(trials, run))
    draft.update(account_before=observation.account, run_account=run_account(run, observation.account))
    draft.warn(*observation.warnings)
    return machine, observation
