"""Whole searches in real launches, with levers that change nothing: how many end with a plan?

The levers are real ones, installed and switched as ever, with a setting that has no effect on this script on a CPU: as
many threads as it has, no workers, a memory format for images, the choice of an attention kernel, and settings of a
GPU. So every plan is a false alarm.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import torch

from bench.studies import finished_study
from hotlap.experiment.draft import OnProgress
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever, find
from hotlap.levers.support.situations import make_setting
from hotlap.procedures.search import tune
from hotlap.records import Progress, Setting, Study, Workload
from hotlap.study import Journal
from hotlap.trial.executor import Executor

SCRIPT = Path(__file__).with_name("nothing_helps.py")


class Placebo(msgspec.Struct, kw_only=True, frozen=True):
    """How one search ended: the levers of its plan, its status, and its time."""

    levers: tuple[str, ...]
    status: str
    seconds: float


def settings() -> tuple[Setting, ...]:
    """Those that change nothing here; the first four can be switched while the script trains."""
    return (
        make_setting("cpu-threads", threads=torch.get_num_threads()),
        make_setting("channels-last"),
        make_setting("attention-kernel", kernel="math"),
        make_setting("cudnn-benchmark"),
        make_setting("loader", num_workers=0, pin_memory=False),
        make_setting("expandable-segments"),
    )


def levers() -> Mapping[str, Lever]:
    """The levers of these settings, which are tried whatever they say about this script."""
    return {it.lever: _with_one_setting(find(it.lever), it) for it in settings()}


def _with_one_setting(lever: Lever, setting: Setting) -> Lever:
    return replace(
        lever,
        obstacle=lambda situation: None,
        bound=lambda situation: None,
        candidates=lambda situation: (setting,),
        proof_for=lambda situation, setting: "exact",
        addresses=(),
    )


def search(
    workload: Workload, options: Options, journal: Journal, executor: Executor, on_progress: OnProgress
) -> Study:
    """The search of `hotlap tune` over these levers."""
    return tune(workload, options, executor, on_progress, journal=journal, levers=levers())


def searched(number: int, budget_seconds: float, root: Path, until: float | None) -> Placebo:
    """One search below ``root``, with a seed of its own, begun or resumed.

    Raises :class:`HotlapError`, and :class:`TimeIsUp` if it is not finished by then.
    """
    workload = Workload(kind="script", target=str(SCRIPT), directory=str(SCRIPT.parent), python=sys.executable)
    options = Options(budget_seconds=budget_seconds, seed=number)

    def say(it: Progress) -> None:
        print(f"search {number + 1}: {it.stage} {it.text}", file=sys.stderr)

    study = finished_study(root, workload, options, search=search, until=until, say=say)
    kept = tuple(it.lever for it in study.plan.settings)
    return Placebo(levers=kept, status=study.status, seconds=study.spent_seconds)
