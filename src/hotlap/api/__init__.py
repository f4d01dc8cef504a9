"""What ``import hotlap`` offers, and what the command line is built from: studies and plans."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from hotlap import __version__, files, plan, study
from hotlap.api.searches import inference_search, memory_search
from hotlap.errors import HotlapError, StudyError
from hotlap.experiment.options import Options, with_quick_budget
from hotlap.gain import recorded_gain
from hotlap.machine.systems import require_linux
from hotlap.records import Isolation, NetworkMode, Objective, Plan, Progress, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor, MakeExecutor, OneSlot
from hotlap.trial.source import source_of

if TYPE_CHECKING:
    from hotlap.records import Check, NumbersHunt, Patch
    from hotlap.source.lint.records import LintReport
    from hotlap.traces.records import Breakdown

STUDIES = Path(".hotlap")
"""Where studies are kept unless another folder is named."""

CHECKS, LABS, PROFILES, BATCHES = study.CHECKS, study.LABS, study.PROFILES, study.BATCHES
"""The folders in there for the studies of ``hotlap check``, ``lab``, ``profile`` and ``batch``."""

_DEFAULT_ISOLATION = Isolation()
SPEED = Objective()
"""What a search is for unless somebody says otherwise."""

OnProgress: TypeAlias = Callable[[Progress], None]
OnOpened: TypeAlias = Callable[[Path], object]
Search: TypeAlias = Callable[[Workload, Options, Journal, Executor, OnProgress], Study]


def local_executor(directory: Path, isolation: Isolation = _DEFAULT_ISOLATION) -> OneSlot:
    """Real trials on this machine; what they leave behind goes into that folder, a study's."""
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
    """The unmodified script, its ceilings and the causes of its slowness; no lever."""
    from hotlap.procedures.profile import profile as look

    return look(workload, options, executor, on_progress, journal=journal)


def batch_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """The script at other batch sizes; no lever."""
    from hotlap.procedures.batch.search import search_batch

    return search_batch(workload, options, executor, on_progress, journal=journal)


@dataclass(frozen=True, slots=True)
class Engine:
    """Who makes trials happen, and who decides which; tests put arithmetic in place of processes."""

    executor: MakeExecutor = local_executor
    search: Search = full_search
    lab: Search = lab_search
    profile: Search = profile_search
    batch: Search = batch_search
    infer: Search = inference_search
    memory: Search = memory_search


def begin(
    workload: Workload,
    options: Options,
    *,
    root: Path = STUDIES,
    on_progress: OnProgress,
    on_opened: OnOpened = lambda directory: None,
    executor: MakeExecutor = local_executor,
    search: Search = full_search,
) -> Study:
    """Make a new study under ``root`` and carry it out; ``on_opened`` is called with its folder first.

    A study that Ctrl-C ended is returned as it stood, with the status ``interrupted``. Raises :class:`HotlapError`.
    """
    source = source_of(workload)
    with study.create_study(root.absolute(), workload, options, hotlap_version=__version__, source=source) as journal:
        on_opened(journal.directory)
        return _carry_out(journal, options, on_progress, executor, search)


def go_on(
    path: Path,
    *,
    on_progress: OnProgress,
    approve: study.Approve = study.refuse_foreign,
    given: Workload | None = None,
    on_opened: OnOpened = lambda directory: None,
    executor: MakeExecutor = local_executor,
    search: Search = full_search,
) -> Study:
    """Go on with a study where it was cut: its folder, or the root for the latest one.

    ``approve`` is asked before the study's command is run; by default only studies that this user made here go on.
    ``given`` is that command again, needed where its arguments hold secrets. Raises :class:`HotlapError`.
    """
    with study.open_study(path.absolute(), approve=approve, given=given) as journal:
        on_opened(journal.directory)
        return _carry_out(journal, journal.options(Options), on_progress, executor, search)


def write_plan(found: Study, path: Path) -> None:
    """Write a study's plan, as a whole or not at all. Raises :class:`StudyError` when that fails."""
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


def tune(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    objective: Objective = SPEED,
    budget_seconds: float | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    allow: Iterable[str] = (),
    accept_unverified: bool = False,
    delta: float = 0.01,
    seed: int = 0,
    parity_steps: int = 300,
    quick: bool = False,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    plan_path: str | os.PathLike[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Study:
    """Find what makes a training script faster on this machine, prove it, and return the study.

    ``objective`` names another metric that is to become better, and limits of others:
    ``Objective(metric="peak_bytes", limits=(Limit(metric="seconds_per_sample", most=1.3),))`` is what ``--goal memory
    --slowdown 1.3`` asks for.

    ``script`` is a path, or with ``module=True`` a dotted name; ``arguments`` are the script's own. The study is kept
    under ``directory``; the plan is written to ``plan_path`` where one is named and a lever was kept. The other options
    are those of ``hotlap tune``. ``on_progress`` is called whenever something begins or becomes known.

    Raises :class:`HotlapError`: a script that cannot be run or has nothing to tune, options that make no sense, a study
    folder that cannot be written.
    """
    options = Options(
        objective=objective,
        budget_seconds=budget_seconds,
        only=tuple(only),
        skip=tuple(skip),
        allow=tuple(allow),
        accept_unverified=accept_unverified,
        delta=delta,
        seed=seed,
        parity_steps=parity_steps,
        quick=quick,
        network=network,
        unprotected=unprotected,
    )
    workload = _workload(script, arguments, module)
    found = begin(workload, with_quick_budget(options), root=Path(directory), on_progress=on_progress or _say_nothing)
    if plan_path is not None and found.plan.settings:
        write_plan(found, Path(plan_path))
    return found


def profile(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    budget_seconds: float | None = None,
    seed: int = 0,
    batch_sizes: bool = False,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Study:
    """Say why a training script takes as long as it does on this machine: its ``findings``, costliest first.

    No lever is tried. With ``batch_sizes`` the model alone is also timed with half, twice and four times the batch
    (``batch_rates``). The other arguments are those of :func:`tune`; the study is kept in a folder of its own under
    ``directory``. Raises as :func:`tune` does.
    """
    options = Options(
        budget_seconds=budget_seconds, seed=seed, batch_sizes=batch_sizes, network=network, unprotected=unprotected
    )
    return begin(
        _workload(script, arguments, module),
        options,
        root=Path(directory) / PROFILES,
        on_progress=on_progress or _say_nothing,
        search=profile_search,
    )


def nan(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    network: NetworkMode = "open",
    unprotected: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> NumbersHunt:
    """Find the operation that makes a training script's first NaN or infinity; ``noticed`` is None if there was none.

    It looks at ``steps`` steps, or until the script ends, but no longer than ``seconds`` (None: as ``hotlap nan``).
    ``on_progress`` is called with a sentence whenever something begins. Raises as :func:`tune` does; nothing is
    kept.
    """
    from hotlap.procedures.numbers_hunt import HuntOptions, hunt
    from hotlap.trial.owned_folder import owned_folder

    options = HuntOptions(steps=steps, seed=seed, network=network, unprotected=unprotected)
    if seconds is not None:
        options = msgspec.structs.replace(options, seconds=seconds)
    with owned_folder("hotlap-nan-") as directory:
        executor = local_executor(directory, options.isolation)
        return hunt(_workload(script, arguments, module), options, executor, on_progress or _say_nothing)


def check(
    script: str | os.PathLike[str],
    *,
    arguments: Sequence[str] = (),
    module: bool = False,
    baseline: str | os.PathLike[str] | None = None,
    plan_path: str | os.PathLike[str] | None = None,
    without_plan: bool = False,
    delta: float = 0.05,
    speed_only: bool = False,
    budget_seconds: float | None = None,
    seed: int = 0,
    parity_steps: int = 300,
    network: NetworkMode = "open",
    unprotected: bool = False,
    directory: str | os.PathLike[str] = STUDIES,
    on_progress: OnProgress | None = None,
) -> Check:
    """Compare a training script with an earlier version, on this machine: is it slower, do its results differ?

    ``baseline`` is a git revision, a plan file, or a study; None means the last finished study of the script below
    ``directory``, else ``hotlap.toml``. With a revision both sides run under the plan ``plan_path`` (None:
    ``hotlap.toml`` where there is one), or ``without_plan``. ``delta`` is the smallest slowdown that counts, as a
    share. With ``speed_only`` the losses are not compared. The other arguments are those of :func:`tune`. ``verdict``
    of the answer is "passed", "failed" or "inconclusive"; it is kept below ``directory``, where ``hotlap history``
    finds it.

    Raises :class:`HotlapError`: a baseline that cannot be found or fails by itself, options that make no sense. A
    present script that fails is an answer.
    """
    from hotlap.procedures.check import find_against
    from hotlap.procedures.check.kept import check_and_keep

    workload = _workload(script, arguments, module)
    against = find_against(
        None if baseline is None else os.fspath(baseline),
        workload,
        Path(directory),
        plan_path=None if plan_path is None else Path(plan_path),
        without_plan=without_plan,
    )
    options = Options(
        budget_seconds=budget_seconds,
        delta=delta,
        seed=seed,
        parity_steps=parity_steps,
        network=network,
        unprotected=unprotected,
    )
    return check_and_keep(
        workload,
        against,
        options,
        local_executor,
        on_progress or _say_nothing,
        studies=Path(directory),
        speed_only=speed_only,
    )


def patch(
    path: str | os.PathLike[str] = STUDIES,
    *,
    write: bool = False,
    prove: bool = True,
    again: bool = False,
    delta: float = 0.05,
    budget_seconds: float | None = None,
    seed: int = 0,
    parity_steps: int = 300,
    network: NetworkMode = "open",
    unprotected: bool = False,
    arguments: Sequence[str] | None = None,
    on_progress: OnProgress | None = None,
) -> Patch:
    """Write the kept levers of a study into the script's source: ``diff`` of the answer is the change.

    ``path`` is a study, or a folder of studies for the last one with a plan. The patched copy is first run against the
    script with the same levers installed from outside, unless ``prove`` is False or this diff was proved before (and
    not ``again``). With ``write`` the files are changed, all of them or none. ``files`` is empty where nothing can be
    written, and ``left_out`` says why. ``delta`` is the slowdown that counts, as a share. ``arguments`` are the
    script's own, needed again only where they hold secrets. The other arguments are those of :func:`tune`. Needs
    LibCST.

    Raises :class:`HotlapError`: a study that kept no lever or that this user did not make here, files that changed
    since the study or cannot be written, a patched copy that is slower or computes something else.
    """
    from hotlap.api.patches import keep_patch, patch_of, refuse_disproved, with_proof, write_patch

    found = study.load_study(find_study(Path(path), "plan").directory)
    made = patch_of(found)
    if not made.files:
        return made
    if prove:
        options = Options(
            budget_seconds=budget_seconds,
            delta=delta,
            seed=seed,
            parity_steps=parity_steps,
            network=network,
            unprotected=unprotected,
        )
        given = None if arguments is None else msgspec.structs.replace(found.workload, arguments=tuple(arguments))
        listener: OnProgress = on_progress or _say_nothing
        made = with_proof(found, made, options, local_executor, lambda: nullcontext(listener), given=given, again=again)
        refuse_disproved(made)
    if write:
        write_patch(found, made)
    keep_patch(found, made)
    return made


def trace(path: str | os.PathLike[str]) -> tuple[Breakdown, ...]:
    """Where the time of a profiler's trace went, or of each trace in a folder; needs no torch.

    Raises :class:`HotlapError` where one cannot be read.
    """
    from hotlap.traces.breakdown import analyse
    from hotlap.traces.files import trace_files
    from hotlap.traces.reader import read_trace

    return tuple(analyse(read_trace(it)) for it in trace_files(Path(path)))


def lint(
    *paths: str | os.PathLike[str], select: Iterable[str] = (), ignore: Iterable[str] = (), processes: int = 1
) -> LintReport:
    """Find what makes training slow or wrong in these files and folders; nothing is executed, imported or changed.

    ``select`` and ``ignore`` are codes or their beginnings, as in ``hotlap lint``; the project's ``pyproject.toml`` is
    respected. Raises :class:`HotlapError` for a path or a code that does not exist.
    """
    from hotlap.source.lint.configuration import chosen_rules, configuration_for
    from hotlap.source.lint.folders import files_of
    from hotlap.source.lint.pool import lint_many
    from hotlap.source.lint.run import Options as LintOptions

    configuration = configuration_for(Path.cwd())
    rules = chosen_rules(tuple(select) or configuration.select, (*configuration.ignore, *ignore))
    files = files_of([Path(it) for it in paths], configuration)
    return lint_many(files, LintOptions(rules=rules, configuration=configuration), processes=processes)


def load_study(path: str | os.PathLike[str] = STUDIES) -> Study:
    """Read a study: its folder, or the folder of all studies for the last one that has an answer.

    Raises :class:`HotlapError` when there is none or when it cannot be read.
    """
    return study.load_study(find_study(Path(path)).directory)


def find_study(path: Path, need: study.Need = "answer") -> study.Last:
    """The study that a path names or, in a folder, the last one that has what is needed. Raises :class:`StudyError`."""
    if study.is_study(path):
        return study.Last(path)
    also = (path / LABS, path / PROFILES, path / study.INFERENCES, path / study.MEMORIES) if need == "answer" else ()
    return study.last_study(path, need, also=also)


def apply(path: str | os.PathLike[str] = "hotlap.toml") -> Plan:
    """Switch on a plan's levers in this process; call it before anything of torch is used.

    Raises :class:`HotlapError` when the plan cannot be read or names what does not exist.
    """
    from hotlap.runtime.boot import apply_plan

    return apply_plan(path)


def _workload(script: str | os.PathLike[str], arguments: Sequence[str], module: bool) -> Workload:
    return Workload(
        kind="module" if module else "script",
        target=os.fspath(script),
        arguments=tuple(arguments),
        directory=os.fspath(Path.cwd()),
        python=sys.executable,
    )


def _carry_out(
    journal: Journal,
    options: Options,
    on_progress: OnProgress,
    executor: MakeExecutor,
    search: Search,
) -> Study:
    try:
        found = search(journal.workload, options, journal, executor(journal.directory, options.isolation), on_progress)
    except KeyboardInterrupt:
        found = msgspec.structs.replace(study.load_study(journal.directory), status="interrupted", status_text="")
        journal.save(found)
    return msgspec.structs.replace(found, directory=str(journal.directory))


def _say_nothing(progress: object) -> None:
    """The default listener."""


__all__ = [
    "HotlapError",
    "MakeExecutor",
    "Plan",
    "Study",
    "apply",
    "check",
    "lint",
    "load_study",
    "nan",
    "patch",
    "profile",
    "trace",
    "tune",
]
