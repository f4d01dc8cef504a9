"""Studies of benchmarks: begun in a folder, and resumed there by the next call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bench.pieces import KeptAnswers, TimeIsUp, check_time
from hotlap.api import Search, begin, full_search, go_on, load_study, local_executor
from hotlap.experiment.options import Options
from hotlap.records import Isolation, Progress, Study, Workload
from hotlap.trial.executor import Executor


def finished_study(
    root: Path,
    workload: Workload,
    options: Options,
    *,
    search: Search = full_search,
    until: float | None = None,
    say: Callable[[Progress], None] = lambda progress: None,
) -> Study:
    """The study below ``root``: finished by an earlier call, else begun there or resumed.

    Raises :class:`HotlapError`, and :class:`TimeIsUp` if it is not finished ``until`` then.
    """

    def executor(folder: Path, isolation: Isolation) -> Executor:
        return KeptAnswers(local_executor(folder, isolation), None, until)

    earlier = [load_study(it.parent) for it in sorted(root.glob("*/study.json"))]
    if earlier and earlier[-1].status not in ("running", "interrupted"):
        return earlier[-1]
    check_time(until)
    if any(root.glob("*/journal.jsonl")):
        study = go_on(root, on_progress=say, executor=executor, search=search)
    else:
        study = begin(workload, options, root=root, on_progress=say, executor=executor, search=search)
    if study.status == "interrupted":
        raise TimeIsUp
    return study
