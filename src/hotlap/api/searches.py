"""Searches that an engine carries out by itself, each loaded when it is asked for."""

from __future__ import annotations

from hotlap.experiment.draft import OnProgress
from hotlap.experiment.options import Options
from hotlap.records import Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor


def inference_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """The search for what makes the calls of a model faster."""
    from hotlap.procedures.infer import infer as search_inference

    return search_inference(workload, options, executor, on_progress, journal=journal)


def memory_search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """Where the memory of the unmodified script goes; no lever."""
    from hotlap.procedures.memory import account_memory

    return account_memory(workload, options, executor, on_progress, journal=journal)
