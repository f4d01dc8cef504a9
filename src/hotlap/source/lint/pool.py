"""Lint many files in several processes.

Only ``trial/`` starts processes that run foreign code; these run the engine on one file after another, and all have
ended when :func:`lint_many` returns.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

from hotlap.errors import LintError
from hotlap.source.lint.api import all_rules
from hotlap.source.lint.project import Around, Parsed, Project
from hotlap.source.lint.records import FileResult, LintReport
from hotlap.source.lint.run import Options, lint_file, lint_files, report_of

_FEWEST_FILES = 150
"""With fewer files, starting processes takes longer than they save."""
_FILES_AT_ONCE = 16
_MOST_PROCESSES = 8
_OBJECTS_BETWEEN_COLLECTIONS = 200_000

_options: Options | None = None
"""The arguments that a worker process started with."""
_parsed = Parsed()
"""The files that a worker process joined with others."""


def lint_many(files: Sequence[Path], options: Options, *, processes: int | None = None) -> LintReport:
    """Do :func:`hotlap.source.lint.run.lint_files`, in a process per core if there are enough files.

    Raises :class:`LintError` when one of the processes dies.
    """
    wanted = processes if processes is not None else min(_MOST_PROCESSES, _cores())
    if wanted < 2 or len(files) < (2 if processes is not None else _FEWEST_FILES):
        return lint_files(files, options)
    # Rules are passed by code: every process loads them from the folder.
    told = replace(options, rules=())
    codes = tuple(it.code for it in options.rules)
    pool = ProcessPoolExecutor(
        wanted, mp_context=multiprocessing.get_context("spawn"), initializer=_begin, initargs=(told, codes)
    )
    try:
        project = Project(files)
        tasks = [(it, project.around(it)) for it in files]
        results = list(pool.map(_lint_one, tasks, chunksize=_FILES_AT_ONCE))
    except BrokenProcessPool:
        raise LintError(
            "A process that checked files was killed.", remedy="Free some memory, or name fewer files at once."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)
    return report_of(results, options.rules)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _begin(options: Options, codes: Sequence[str]) -> None:
    global _options
    # An interrupt reaches the whole group; the parent ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="hotlap-parent", daemon=True).start()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _options = replace(options, rules=[all_rules()[it] for it in codes])


def _end_with_parent() -> None:
    """End this worker when its parent ends.

    A worker that waits for a file holds both ends of its pipe and so cannot notice it; a thread waits for
    the parent.
    """
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _lint_one(task: tuple[Path, tuple[Path, ...]]) -> FileResult:
    assert _options is not None
    file, others = task
    return lint_file(file, _options, Around(file, others, _parsed))
