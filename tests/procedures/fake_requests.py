"""What the fake executor reads from a request: how many samples a step has, what is swept, how long arms warm up."""

from __future__ import annotations

import math

import msgspec

from hotlap.measure.speed import fewest_warm_up_steps
from hotlap.records import (
    Assignment,
    Instrument,
    ReplayBatch,
    ResizeBatches,
    Setting,
    SweepLoader,
    TurnRequest,
    Workload,
)

WARM_UP_BLOCKS = 5


def is_replayed(arm: Assignment) -> bool:
    return arm.instrument(ReplayBatch) is not None


def scale_of(arm: Assignment) -> float:
    replay = arm.instrument(ReplayBatch)
    if replay is not None:
        return replay.scale
    resized = arm.instrument(ResizeBatches)
    if resized is not None:
        return resized.size / resized.own
    for setting in arm.plan.settings:
        if setting.lever == "batch-size":
            values = dict(setting.values)
            return float(values["size"]) / float(values["own"])
    words = arm.workload.arguments
    return int(words[words.index("--batch-size") + 1]) / 8 if "--batch-size" in words else 1.0


def swept(arm: Assignment) -> tuple[Setting, ...]:
    sweep = arm.instrument(SweepLoader)
    return sweep.settings if sweep is not None else ()


_ON_COMPILING = ("compiles_all", "loads_code")


def told(value: object) -> object:
    """A record as the fields that say something else than their default; a workload's are the tests' own folders, and
    what an arm compiles or loads makes no difference to its steps."""
    if isinstance(value, tuple):
        return [told(it) for it in value]
    if not isinstance(value, msgspec.Struct):
        return value
    if isinstance(value, Workload):
        return value.kind
    fields = ((it.name, getattr(value, it.name), it.default) for it in msgspec.structs.fields(value))
    fields_told = {
        name: told(given) for name, given, default in fields if given != default and name not in _ON_COMPILING
    }
    return {type(value).__name__: fields_told} if isinstance(value, Instrument) else fields_told


def processes_of(arm: Assignment) -> int:
    """As many as the launcher is given."""
    given = [it.partition("=")[2] for it in arm.workload.arguments if it.startswith("--nproc-per-node=")]
    return int(given[0]) if given else 1


def warm_up_steps(request: TurnRequest, step_seconds: float) -> int:
    """The steps of an arm before its first round, as blocks of half the usual length, each led in with one."""
    half = math.ceil(1.25 * request.block_seconds / 2 / step_seconds)
    return WARM_UP_BLOCKS * (max(fewest_warm_up_steps(request.block_steps), half) + 1)
