"""Make a study or resume one: the executor that runs its trials, and the search that decides on them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec

from hotlap import __version__, files, plan, study
from hotlap.errors import StudyError
from hotlap.experiment.options import Options
from hotlap.gain import recorded_gain
from hotlap.machine.systems import require_linux
from hotlap.records import Isolation, Machine, Progress, Study, TrialCluster, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor, MakeExecutor, OneSlot
from hotlap.trial.source import source_of

STUDIES = Path(".hotlap")
"""Where studies are kept unless another folder is named."""

_DEFAULT_ISOLATION = Isolation()

OnProgress: TypeAlias = Callable[[Progress], None]
OnOpened: TypeAlias = Callable[[Path], object]
Search: TypeAlias = Callable[[Workload, Options, Journal, Executor, OnProgress], Study]


def local_executor(directory: Path, isolation: Isolation = _DEFAULT_ISOLATION) -> OneSlot:
    """Real trials on this machine; they write only to that folder, a study's."""
    require_linux("hotlap")
    from hotlap.runtime.trackers import tracker_environment
    from hotlap.trial.handshake import require_numpy
    from hotlap.trial.local import LocalExecutor
    from hotlap.trial.sweeping import sweep_leftovers, sweep_temporary_folders

    require_numpy()
    # The study is locked by now, and nothing of it runs yet.
    sweep_temporary_folders()
    sweep_leftovers(directory / study.RUNS)
    environment = tracker_environment(directory)
    return LocalExecutor(directory=directory / study.RUNS, environment=environment, isolation=isolation)


def full_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """The search over all levers."""
    from hotlap.procedures.search import tune as search

    return search(workload, options, executor, on_progress, journal=journal)


def lab_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """The three-run lab: full precision, mixed precision, mixed precision and compile."""
    from hotlap.procedures.lab import run_lab

    return run_lab(workload, options, executor, on_progress, journal=journal)


def profile_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Measure the unmodified script, its ceilings and its bottlenecks; try no lever."""
    from hotlap.procedures.profile import profile as look

    return look(workload, options, executor, on_progress, journal=journal)


def batch_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Measure the script at other batch sizes; try no lever."""
    from hotlap.procedures.batch.search import search_batch

    return search_batch(workload, options, executor, on_progress, journal=journal)


def inference_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Search for what makes the calls of a model faster."""
    from hotlap.procedures.infer import infer as search_inference

    return search_inference(workload, options, executor, on_progress, journal=journal)


def memory_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Account for the memory of the unmodified script; try no lever."""
    from hotlap.procedures.memory import account_memory

    return account_memory(workload, options, executor, on_progress, journal=journal)


def scale_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Predict the script's step on more devices from its own measured step."""
    from hotlap.procedures.scale import scale

    return scale(workload, options, executor, on_progress, journal=journal)


def process_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Measure the script in several numbers of processes."""
    from hotlap.procedures.processes import compare_processes

    return compare_processes(workload, options, executor, on_progress, journal=journal)


@dataclass(frozen=True, slots=True)
class Engine:
    """The executor that runs trials, and the search that chooses them; tests replace processes with arithmetic."""

    executor: MakeExecutor = local_executor
    search: Search = full_search
    lab: Search = lab_search
    profile: Search = profile_search
    batch: Search = batch_search
    infer: Search = inference_search
    memory: Search = memory_search
    scale: Search = scale_search
    processes: Search = process_search


def begin(
    workload: Workload,
    options: Options,
    *,
    root: Path = STUDIES,
    on_progress: OnProgress,
    on_opened: OnOpened = lambda directory: None,
    executor: MakeExecutor | None = None,
    search: Search = full_search,
) -> Study:
    """Make a new study under ``root`` and run it; ``on_opened`` is called with its folder first.

    A study interrupted by Ctrl-C is returned as far as it got, with the status ``interrupted``.
    Raises :class:`HotlapError`.
    """
    source = source_of(workload)
    with study.create_study(root.absolute(), workload, options, hotlap_version=__version__, source=source) as journal:
        on_opened(journal.directory)
        return _carry_out(journal, options, on_progress, executor or local_executor, search)


def go_on(
    path: Path,
    *,
    on_progress: OnProgress,
    approve: study.Approve = study.refuse_foreign,
    given: Workload | None = None,
    on_opened: OnOpened = lambda directory: None,
    executor: MakeExecutor | None = None,
    search: Search = full_search,
) -> Study:
    """Resume an interrupted study: its folder, or the root for the latest one.

    ``approve`` is called before the study's command is run; by default only studies that this user made here resume.
    ``given`` is that command again, needed where its arguments hold secrets. Raises :class:`HotlapError`.
    """
    with study.open_study(path.absolute(), approve=approve, given=given) as journal:
        on_opened(journal.directory)
        return _carry_out(journal, journal.options(Options), on_progress, executor or local_executor, search)


def write_plan(found: Study, path: Path) -> None:
    """Write a study's plan atomically. Raises :class:`StudyError` when that fails."""
    versions = dict(found.machine.library_versions)
    text = plan.to_toml(
        found.plan, torch_version=versions.get("torch", ""), study=found.identifier, gain=recorded_gain(found)
    )
    try:
        files.replace(path, text.encode("utf-8"))
    except OSError as error:
        raise StudyError(
            f"The plan {path} cannot be written: {error.strerror or error}.",
            remedy="The study is kept: `hotlap report --plan-out PATH` writes the plan elsewhere.",
        ) from error


def _carry_out(
    journal: Journal,
    options: Options,
    on_progress: OnProgress,
    executor: MakeExecutor,
    search: Search,
) -> Study:
    if options.cluster is not None:
        from hotlap.cluster import cluster_executor

        executor = cluster_executor(options.cluster, journal.workload)
    try:
        found = search(journal.workload, options, journal, executor(journal.directory, options.isolation), on_progress)
    except KeyboardInterrupt:
        found = msgspec.structs.replace(study.load_study(journal.directory), status="interrupted", status_text="")
        journal.save(found)
    return msgspec.structs.replace(found, directory=str(journal.directory))


def machines_of_cluster(cluster: TrialCluster, directory: Path) -> list[tuple[str, Machine]]:
    """The free nodes of a Ray cluster by name, with their measured rates; ``directory`` is used meanwhile.

    Raises :class:`HotlapError` where the cluster cannot be reached.
    """
    from hotlap.cluster.ray_nodes import cluster_machines

    workload = Workload(kind="script", target="", directory=str(Path.cwd()), python=sys.executable)
    return cluster_machines(cluster, workload, directory)


def say_nothing(progress: object) -> None:
    """The default listener."""
