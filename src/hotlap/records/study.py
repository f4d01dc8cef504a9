"""Everything that one search or profile found."""

from __future__ import annotations

import importlib
import os
from typing import Any, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.batches import BatchAdvice, BatchSearch
from hotlap.records.comparisons import BatchRate, Candidate, Ceiling, Comparison, LossCurves, PhaseAccount, Refused
from hotlap.records.disturbance import Disturbance
from hotlap.records.estimate import Estimate
from hotlap.records.machine import Machine
from hotlap.records.memory import MemoryAccount, MemoryEstimate
from hotlap.records.objective import Objective
from hotlap.records.outcomes import Finding, Outcome
from hotlap.records.run_account import RunAccount
from hotlap.records.runs import FileWrite, LoaderRate, Run
from hotlap.records.scaling import ProcessScaling, ScalePrediction, StrategyChoice
from hotlap.records.timings import Timings
from hotlap.records.watch import WatchedRun
from hotlap.records.workload import Plan, Source, Workload

StudyStatus: TypeAlias = Literal["running", "finished", "interrupted", "out-of-budget", "quick-look", "script-failed"]
StudyKind: TypeAlias = Literal[
    "search", "profile", "check", "batch", "inference", "memory", "watch", "scale", "processes"
]
CheckVerdict: TypeAlias = Literal["passed", "failed", "inconclusive"]


class Study(Record, frozen=True, kw_only=True):
    """Everything that one ``hotlap tune`` found, or one ``hotlap profile``, which finds causes and tries no lever.
    Rendering needs nothing else. For a ``hotlap check`` it is what ``hotlap history`` shows: ``check_verdict``, its
    sentences as ``status_text``, and the comparison of both sides as ``verification``.

    ``objective`` is what the search improves. ``run_account`` is what the script does besides its steps.
    ``profiled_steps`` is over how many steps evidence was collected (0: there is none, and ``findings`` rest on the
    time account and the ceilings alone), and ``trace_path`` the trace of some of them; ``plan_profiled_steps`` and
    ``plan_trace_path`` are the same with the plan, and ``plan_not_profiled`` says why there are none. ``loader_rates``
    is the loader alone with the settings that were timed, ``batch_rates`` the model alone with other batch sizes,
    ``batch_search`` what ``hotlap batch``, or a search that may change the batch size, found, ``batch_advice`` what
    such a change asks for, ``memory`` the account of ``hotlap memory``, ``memory_estimate`` what ``hotlap memory
    --estimate`` computed, ``scale`` what ``hotlap scale`` predicted, ``process_scaling`` what ``hotlap tune --nproc``
    measured, ``strategies`` what was predicted of other strategies for the script's ranks, ``losses`` what the
    verification's sameness was judged by, and ``timings`` what its speed was computed from. ``candidates`` are the
    plans that ``hotlap infer`` compared with the unmodified model, in the order in which they were, ``refused`` those
    whose outputs were not as required and that were not compared further, and ``quality_level`` is what outputs had to
    reach (None: of another kind of study). ``hosts`` are those that any trial connected to. ``disturbances`` are the
    measurements that other programs disturbed and that could not be repeated on an idle machine. Of a profile,
    ``threads_left`` is with how many threads the script was measured, since others kept the other cores busy (0: with
    its own).

    A study of status ``quick-look`` proves and claims nothing, because only that was requested (``quick``) or the
    budget was too small. ``needed_seconds`` is the budget that would be enough for a proof, or for the levers that the
    search had no time for; None where nothing was left. ``narrowed_by`` are the options that said which levers to try,
    as typed, and ``repeated_options`` all those that a repetition of the command keeps.
    """

    format_version: int = 4
    kind: StudyKind = "search"
    identifier: str = ""
    hotlap_version: str = ""
    started: str = ""
    status: StudyStatus = "running"
    status_text: str = ""
    check_verdict: CheckVerdict | None = None
    workload: Workload
    source: Source = Source()
    machine: Machine = Machine()
    objective: Objective = Objective()
    budget_seconds: float | None = None
    spent_seconds: float = 0.0
    needed_seconds: float | None = None
    quick: bool = False
    narrowed_by: tuple[str, ...] = ()
    repeated_options: tuple[str, ...] = ()
    baseline: Run | None = None
    account_before: PhaseAccount | None = None
    account_after: PhaseAccount | None = None
    run_account: RunAccount | None = None
    ceilings: tuple[Ceiling, ...] = ()
    model_flop_utilisation: float | None = None
    loader_rates: tuple[LoaderRate, ...] = ()
    batch_rates: tuple[BatchRate, ...] = ()
    batch_search: BatchSearch | None = None
    batch_advice: BatchAdvice | None = None
    memory: MemoryAccount | None = None
    memory_estimate: MemoryEstimate | None = None
    scale: ScalePrediction | None = None
    process_scaling: ProcessScaling | None = None
    strategies: StrategyChoice | None = None
    profiled_steps: int = 0
    trace_path: str = ""
    plan_profiled_steps: int = 0
    plan_trace_path: str = ""
    plan_not_profiled: str = ""
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    plan: Plan = Plan()
    verification: Comparison | None = None
    losses: LossCurves | None = None
    watch: WatchedRun | None = None
    timings: Timings | None = None
    candidates: tuple[Candidate, ...] = ()
    refused: tuple[Refused, ...] = ()
    quality_level: float | None = None
    files: tuple[FileWrite, ...] = ()
    hosts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()
    threads_left: int = 0
    directory: str = ""

    def __repr__(self) -> str:
        """One line: the whole of a study fills a screen many times over, and ``hotlap report --json`` shows it."""
        kept = ", ".join(it.lever for it in self.plan.settings)
        return (
            f"<Study {self.identifier!r} ({self.kind}, {self.status}): {self.workload.target!r}, kept: {kept or '-'}>"
        )

    # What follows is computed elsewhere, on demand: a record has no logic, and a script that is run reads records.

    @property
    def speedup(self) -> Estimate | None:
        """The speedup of the plan over the unmodified script with its interval, where the study claims one.

        None otherwise; ``verification`` then still has what was measured. The confidence is
        ``verification.speed.confidence``.
        """
        found: Comparison | None = importlib.import_module("hotlap.gain").claimed_speedup(self)
        return found.speed.speedup if found is not None else None

    def steps(self) -> list[dict[str, Any]]:
        """Tidy rows, one for each step: ``pandas.DataFrame(study.steps())`` is a table of them.

        Each is a dictionary with the same keys: ``study``, ``run`` (``baseline``, or ``plan`` with the levers that were
        kept), ``step`` from 1, ``wall_seconds``, the seconds of each phase, ``samples``, ``loss`` and so on, as in
        ``steps.csv`` of ``hotlap export csv``. Raises :class:`hotlap.errors.StudyError` for a damaged study.
        """
        rows: list[dict[str, Any]] = importlib.import_module("hotlap.export.rows").step_rows(self)
        return rows

    def html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as one HTML file, as ``hotlap report --html`` does.

        A report at that path is replaced, and nothing else is. Raises :class:`hotlap.errors.HotlapError` where another
        file is in its place or it cannot be written.
        """
        importlib.import_module("hotlap.cli.page").write_report(self, path)

    # Notebooks call these on the object that they display; the text is rendered elsewhere, on demand.

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        bundle: dict[str, str] = importlib.import_module("hotlap.render.notebook").mime_bundle(self)
        return bundle

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]
