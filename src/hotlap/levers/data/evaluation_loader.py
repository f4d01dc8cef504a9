"""Worker processes load the batches of an evaluation ahead of time.

## What it does
Replaces the arguments of each `DataLoader` over a map-style data set that is read for an evaluation (without gradients,
or while the models are in evaluation mode): the number of workers, pinned memory, and whether workers persist from one
evaluation to the next. Loaders that training reads first are not changed.

## When it helps
When evaluations take a visible part of the run and wait for their data. `hotlap tune --goal evaluation` tries it.

## What it costs
Each worker is a process with its own memory; with `persistent_workers` it stays during training too, where it waits. A
first evaluation starts them.

## Before
    validation_loader = DataLoader(validation_set, batch_size=256)

## After
    validation_loader = DataLoader(validation_set, batch_size=256, num_workers=2, persistent_workers=True)

## What is proved
`exact`: training is not changed, and its losses must agree to the last bit. The batches of an evaluation are the same,
in the same order; data sets that draw random numbers while fetching are left alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter
from hotlap.levers.data.loader import change_loaders, copy_without_waiting
from hotlap.levers.support.evaluation import evaluation_watch
from hotlap.levers.support.situations import cores_per_process, is_nvidia_like, make_setting
from hotlap.records import (
    EVALUATION_SECONDS,
    LoaderArguments,
    LoaderFacts,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Worker processes load the batches of an evaluation"
proof: Proof = "exact"
improves = (EVALUATION_SECONDS,)
addresses = ("evaluation-cost",)
parameters = {
    "num_workers": Parameter(int, minimum=1, maximum=256),
    "pin_memory": Parameter(bool, required=False),
    "persistent_workers": Parameter(bool, required=False),
}

_MOST_WORKERS = 4


def obstacle(situation: Situation) -> Skipped | None:
    """Require a map-style loader without workers that is read for evaluation alone."""
    loaders = [it for it in situation.facts.loaders if it.evaluates and not it.trains]
    if situation.facts.evaluation is None:
        return Skipped(reason="No evaluation was observed between training steps.")
    if not loaders:
        return Skipped(reason="No DataLoader was seen that is only read for evaluation.")
    if not _without_workers(loaders):
        return Skipped(reason="The loaders of the evaluation have workers.", already=True)
    if any(it.draws_random for it in _without_workers(loaders)):
        return Skipped(reason="The evaluation's data set draws random numbers, which workers would draw otherwise.")
    return None


def bound(situation: Situation) -> float | None:
    """Evaluation is no part of a step, so no step becomes faster."""
    return 1.0 if situation.account.wall > 0 else None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """One worker, and one for each core up to four."""
    pin = is_nvidia_like(situation)
    counts = dict.fromkeys((1, max(1, min(_MOST_WORKERS, cores_per_process(situation)))))
    return tuple(
        make_setting("evaluation-loader", num_workers=it, pin_memory=pin, persistent_workers=True) for it in counts
    )


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The arguments of the loaders that are only read for evaluation."""
    return (LoaderArguments(values=tuple((name, value) for name, value in setting.values if value), evaluation=True),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Replace each loader's arguments when an evaluation reads it first."""
    change_loaders(hooks, setting, evaluation_watch(hooks))
    if dict(setting.values).get("pin_memory"):
        copy_without_waiting(hooks)


def _without_workers(loaders: list[LoaderFacts]) -> list[LoaderFacts]:
    return [it for it in loaders if not it.iterable and not it.workers]
