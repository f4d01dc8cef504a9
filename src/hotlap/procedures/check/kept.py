"""Run a whole check: copy both sides, run the trials, and store the answer in a study."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec

from hotlap import __version__
from hotlap.errors import StudyError
from hotlap.experiment.draft import OnProgress, say_nothing
from hotlap.experiment.options import Options
from hotlap.procedures.check.compare import check, without_plan
from hotlap.records import Against, Check, Sides, Workload
from hotlap.study import CHECKS, create_study
from hotlap.trial.checkout import before_and_now, find_commit
from hotlap.trial.executor import MakeExecutor
from hotlap.trial.owned_folder import owned_folder
from hotlap.trial.source import source_of


def check_and_keep(
    workload: Workload,
    against: Against,
    options: Options,
    make_executor: MakeExecutor,
    on_progress: OnProgress = say_nothing,
    *,
    studies: Path,
    speed_only: bool = False,
) -> Check:
    """Check a script, and store the answer in the folder of checks below ``studies``.

    If that folder cannot be written, the answer contains a note: a read-only checkout is no reason to fail. Raises as
    :func:`hotlap.procedures.check.check` does, and :class:`UsageError` if a revision cannot be checked out.
    """
    with owned_folder("hotlap-check-") as folder:
        sides = _sides(workload, against, folder)
        executor = make_executor(folder, options.isolation)
        compare = partial(check, workload, against, sides, options, executor, on_progress, speed_only=speed_only)
        root = studies.absolute() / CHECKS
        try:
            journal = create_study(root, workload, options, hotlap_version=__version__, source=source_of(workload))
        except StudyError as error:
            found = compare()
            return msgspec.structs.replace(
                found, warnings=(*found.warnings, f"`hotlap history` does not show it: {error.what}")
            )
        with journal:
            return compare(journal=journal)


def _sides(workload: Workload, against: Against, folder: Path) -> Sides:
    if against.kind == "plan":
        return without_plan(workload, against)
    before, now = before_and_now(find_commit(workload, against.commit), workload, folder)
    return Sides(before=before, before_plan=against.plan, now=now, now_plan=against.plan)
