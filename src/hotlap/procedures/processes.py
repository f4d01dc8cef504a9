"""Measure how a script scales on this machine: the same batch in each of several numbers of processes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

import msgspec

from hotlap.errors import BudgetError, ScriptError, UsageError
from hotlap.experiment.comparing import compare_replicates, peak_bytes
from hotlap.experiment.draft import OnProgress, StudyDraft, say_nothing
from hotlap.experiment.failures import Failure
from hotlap.experiment.observe import command_line
from hotlap.experiment.options import Options, check
from hotlap.experiment.plan_ahead import Forecast, Launches
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.stages import begin, guarded, opened
from hotlap.experiment.trials import Arm, Trials
from hotlap.levers.api import all_levers
from hotlap.measure import speed
from hotlap.procedures.budget import ADVICE_MARGIN, rounded_up
from hotlap.records import ProcessRate, ProcessScaling, Replicate, Study, Workload
from hotlap.redact import redacted
from hotlap.study import Journal
from hotlap.trial.executor import Executor

FEWEST_PROCESSES, MOST_PROCESSES = 1, 64
MOST_COUNTS = 5
"""All arms are alive at the same time, and the first runs twice."""

_REPLICATES = 5
_FEWEST_REPLICATES = 3
_TORCHRUN = "torch.distributed.run"
_FLAGS = {
    _TORCHRUN: ("--nproc-per-node", "--nproc_per_node"),
    "accelerate.commands.launch": ("--num_processes", "--num-processes"),
}
"""A launcher's module, and the names of its option for the number of processes."""

_RENDEZVOUS = ("--standalone", "--rdzv", "--master", "--nnodes")


def compare_processes(
    workload: Workload,
    options: Options,
    executor: Executor,
    on_progress: OnProgress = say_nothing,
    *,
    journal: Journal | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Study:
    """Compare the numbers of ``options.processes`` in paired replicates: weak scaling.

    Raises as :func:`hotlap.procedures.search.tune` does, and :class:`UsageError` for numbers that cannot be compared
    and for launchers that are not supported.
    """
    check(options, all_levers())
    counts = checked_counts(options.processes)
    first = launched(workload, counts[0])
    trials, draft = opened(first, options, executor, on_progress, journal, clock, kind="processes")
    draft.update(workload=redacted(workload))
    return guarded(draft, lambda: _measure(trials, draft, workload, counts), lambda: draft.close("interrupted"))


def checked_counts(counts: Sequence[int]) -> tuple[int, ...]:
    """The numbers of processes, the smallest first. Raises :class:`UsageError`."""
    found = tuple(sorted(set(counts)))
    if not 2 <= len(found) <= MOST_COUNTS or found[0] < FEWEST_PROCESSES or found[-1] > MOST_PROCESSES:
        raise UsageError(
            "--nproc compares from 2 to 5 numbers of processes, each from 1 to 64.", remedy="Give --nproc 1,2,4."
        )
    return found


def launched(workload: Workload, processes: int) -> Workload:
    """The workload in so many processes: by its own launcher, else by torchrun.

    Raises :class:`UsageError` for other launchers.
    """
    if workload.kind == "module" and workload.target in _FLAGS:
        arguments = _with_option(workload.arguments, _FLAGS[workload.target], processes)
        if workload.target == _TORCHRUN and not any(it.startswith(_RENDEZVOUS) for it in arguments):
            arguments = ("--standalone", *arguments)
        return msgspec.structs.replace(workload, arguments=arguments)
    if workload.kind == "module" and workload.target.startswith(("lightning", "deepspeed")):
        raise UsageError(
            f"--nproc cannot change the number of processes of {workload.target}.",
            remedy="Start the script with torchrun or accelerate launch.",
        )
    script = (workload.target,) if workload.kind == "script" else ("-m", workload.target)
    return msgspec.structs.replace(
        workload,
        kind="module",
        target=_TORCHRUN,
        arguments=("--standalone", f"--nproc-per-node={processes}", *script, *workload.arguments),
    )


def _with_option(words: Sequence[str], names: Sequence[str], value: int) -> tuple[str, ...]:
    """The launcher's arguments with another value of that option; added in front where it is missing."""
    for index, word in enumerate(words):
        if word in names and index + 1 < len(words):
            return (*words[: index + 1], str(value), *words[index + 2 :])
        if word.partition("=")[0] in names and "=" in word:
            return (*words[:index], f"{word.partition('=')[0]}={value}", *words[index + 1 :])
        if not word.startswith("-") and word.endswith(".py"):
            break  # what follows the script belongs to the script
    return (f"{names[0]}={value}", *words)


def _measure(trials: Trials, draft: StudyDraft, workload: Workload, counts: Sequence[int]) -> None:
    machine, _ = begin(trials, draft)
    trials.cuts_replicates = True
    running, failed, reason = list(counts), 0, ""
    while len(running) > 1:
        arms = [Arm(workload=launched(workload, it)) for it in (running[0], *running)]
        replicates = _affordable(trials, arms)
        seconds = trials.replicates_seconds(arms, replicates, trials.rounds)
        names = ", ".join(map(str, running))
        draft.plan_ahead(
            "baseline", Forecast.of(Launches(replicates * len(arms), seconds, f"in {names} processes side by side"))
        )
        design = Design(
            arms=arms,
            purpose=f"processes {names}",
            analyses=tuple(sorted({_FEWEST_REPLICATES, replicates})),
            accept=partial(_all_started, (running[0], *running)),
            compares=False,
            label=f"In {names} processes",
        )
        found = replicate(trials, draft, design)
        if found.failure is None:
            rates = _rates(trials, running, found.replicates)
            taken = len(found.replicates)
            draft.update(process_scaling=ProcessScaling(rates=rates, replicates=taken, cores=machine.cores))
            draft.close("finished")
            return
        if found.failure.cut:
            needed = rounded_up(trials.spent_seconds + ADVICE_MARGIN * seconds)
            raise BudgetError(
                f"The budget ended before {_FEWEST_REPLICATES} replicates were complete.",
                remedy=f"Give at least --budget {needed:.0f}s, or none.",
                needed_seconds=needed,
            )
        reason = found.failure.reason
        failed = running.pop(max(0, found.failure.arm - 1))
        draft.warn(f"In {failed} processes the script failed: {reason}")
    raise ScriptError(
        f"The script ran in too few numbers of processes to be compared. In {failed}: {reason}",
        where=command_line(trials.workload),
        remedy="Run it by hand in that many processes.",
    )


def _all_started(counts: Sequence[int], turns: Replicate) -> Failure | None:
    """A failure of the first arm in which another number of processes trained than its launcher was given.

    ``accelerate launch --cpu`` starts a single one, for example, unless it finds MPI.
    """
    for arm, (wanted, run) in enumerate(zip(counts, turns.runs, strict=True)):
        trained = max(1, len(run.rank_step_seconds), run.facts.processes)
        if trained != wanted:
            what = "1 process" if trained == 1 else f"{trained} processes"
            return Failure(arm, run.ending, f"The launcher started {what} that trained, not {wanted}.")
    return None


def _affordable(trials: Trials, arms: Sequence[Arm]) -> int:
    trials.choose_rounds(1)
    cost = trials.replicates_seconds(arms, _REPLICATES, trials.rounds)
    return _REPLICATES if trials.fits(cost) else _FEWEST_REPLICATES


def _rates(trials: Trials, counts: Sequence[int], replicates: Sequence[Replicate]) -> tuple[ProcessRate, ...]:
    """Arm 0 and arm 1 are the smallest number; seconds per sample are those of one process."""
    rates = []
    for arm, count in enumerate(counts, start=1):
        compared = None
        if arm > 1:
            found = compare_replicates(
                replicates, delta=trials.options.delta, confidence=speed.HEADLINE_CONFIDENCE, arms=(0, 1, arm)
            )
            compared = found.speedup
        seconds = math.exp(fmean(math.log(it) for turns in replicates for it in turns.rounds[arm]))
        run = replicates[-1].runs[arm]
        samples = fmean(run.steps.samples) if any(run.steps.samples) else 1.0
        rates.append(
            ProcessRate(
                processes=count,
                threads=run.facts.threads,
                step_seconds=seconds * samples,
                samples_per_second=count / seconds,
                efficiency=compared,
                peak_bytes=max(peak_bytes(turns.runs[arm]) for turns in replicates),
            )
        )
    return tuple(rates)
