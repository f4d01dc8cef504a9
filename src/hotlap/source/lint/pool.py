"""Linting many files in several processes.

Processes that run anybody else's code start in ``trial/`` alone; these run nothing but the engine itself on one file
after the other, and all of them have ended when :func:`lint_many` returns.
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
"""With fewer files starting processes takes longer than they save."""
_FILES_AT_ONCE = 16
_MOST_PROCESSES = 8
_OBJECTS_BETWEEN_COLLECTIONS = 200_000

_options: Options | None = None
"""What a worker process was told when it began."""
_parsed = Parsed()
"""The files that a worker process joined with others."""


def lint_many(files: Sequence[Path], options: Options, *, processes: int | None = None) -> LintReport:
    """As :func:`hotlap.source.lint.run.lint_files`, in as many processes as there are cores where that pays.

    Raises :class:`LintError` when one of the processes dies.
    """
    wanted = processes if processes is not None else min(_MOST_PROCESSES, _cores())
    if wanted < 2 or len(files) < (2 if processes is not None else _FEWEST_FILES):
        return lint_files(files, options)
    # Rules travel as their codes: every process finds them in the folder by itself.
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
    # An interrupt reaches the whole group; whoever started us ends us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="hotlap-parent", daemon=True).start()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _options = replace(options, rules=[all_rules()[it] for it in codes])


def _end_with_parent() -> None:
    """A worker that waits for its next file never notices that nobody is left to send one: it holds both ends of that
    pipe itself. So a thread waits for the parent's end, however that comes."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _lint_one(task: tuple[Path, tuple[Path, ...]]) -> FileResult:
    assert _options is not None
    file, others = task
    return lint_file(file, _options, Around(file, others, _parsed))
