"""What ``import hotlap`` offers, and what the command line is built from: studies and plans."""

from __future__ import annotations

from hotlap.api.engine import (
    STUDIES,
    Engine,
    OnOpened,
    OnProgress,
    Search,
    begin,
    full_search,
    go_on,
    lab_search,
    local_executor,
    machines_of_cluster,
    profile_search,
    write_plan,
)
from hotlap.api.questions import check, nan, patch
from hotlap.api.reading import apply, find_study, lint, load_study, trace
from hotlap.api.searches import (
    LENGTH_LEVERS,
    batch,
    check_lengths,
    infer,
    inference_workload,
    memory,
    profile,
    scale,
    tune,
)
from hotlap.errors import HotlapError
from hotlap.records import Plan, Study
from hotlap.study import BATCHES, CHECKS, LABS, PROFILES
from hotlap.trial.executor import MakeExecutor

__all__ = [
    "BATCHES",
    "CHECKS",
    "LABS",
    "LENGTH_LEVERS",
    "PROFILES",
    "STUDIES",
    "Engine",
    "HotlapError",
    "MakeExecutor",
    "OnOpened",
    "OnProgress",
    "Plan",
    "Search",
    "Study",
    "apply",
    "batch",
    "begin",
    "check",
    "check_lengths",
    "find_study",
    "full_search",
    "go_on",
    "infer",
    "inference_workload",
    "lab_search",
    "lint",
    "load_study",
    "local_executor",
    "machines_of_cluster",
    "memory",
    "nan",
    "patch",
    "profile",
    "profile_search",
    "scale",
    "trace",
    "tune",
    "write_plan",
]
