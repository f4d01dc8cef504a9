"""The time account of a whole run: its steps, and what happens between them (evaluation, checkpoints, start-up)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median, stdev
from typing import NamedTuple, TypeAlias

from hotlap.measure.student import quantile
from hotlap.records import (
    Completed,
    Estimate,
    OutsideKind,
    OutsidePart,
    PhaseAccount,
    Run,
    RunAccount,
    ScriptFacts,
    Steps,
)

UNIT = "of the run"
_LEAST_PART = 1e-3
"""As a share of the step: shorter time between two steps is not a block, but a call that did nothing."""

_FEWEST_BLOCKS_WITH_INTERVAL = 3
_KINDS: tuple[OutsideKind, ...] = ("evaluation", "checkpoints", "other")


_Blocks: TypeAlias = Mapping[int, float]
"""The seconds of blocks by the row of the step after them."""


class _PerStep(NamedTuple):
    """The cost per step of one kind of block, observed and bounded, in seconds."""

    value: float
    low: float
    high: float


def run_account(run: Run, phases: PhaseAccount) -> RunAccount | None:
    """The time account of a run from its first step on; None without steps.

    Everything before the end of the first step is start-up. A kind of block that occurred several times costs its mean
    duration once per mean distance in steps. One that occurred once, at the end of an epoch, recurs with each epoch,
    whose steps follow from the loader's length. Otherwise its cost is only bounded: from below by zero, and from above
    by the longer run of steps without it.
    """
    steps = run.steps
    if phases.wall <= 0 or len(steps.wall_seconds) < 2:
        return None
    epoch_steps = steps_per_epoch(run.facts, steps)
    seen = {
        kind: blocks
        for kind, column in zip(_KINDS, _columns(steps), strict=True)
        if (blocks := {row: it for row, it in enumerate(column) if row > 0 and it > _LEAST_PART * phases.wall})
    }
    costs = {kind: _cost(blocks, epoch_steps, len(steps.wall_seconds)) for kind, blocks in seen.items()}
    step = _PerStep(phases.wall, phases.wall, phases.wall)
    step_share = _share(step, list(costs.values()))
    return RunAccount(
        steps=len(steps.wall_seconds),
        epoch_steps=epoch_steps,
        step_seconds=phases.wall,
        step_share=step_share,
        outside=tuple(
            _part(kind, blocks, epoch_steps, _share(costs[kind], _others(costs, kind, step)))
            for kind, blocks in seen.items()
        ),
        startup_seconds=run.startup_seconds,
        **_whole(run, step_share),
    )


def steps_per_epoch(facts: ScriptFacts, steps: Steps) -> int | None:
    """The steps of one epoch by the length of the only training loader; None if unknown."""
    loaders = {(it.dataset, it.length, it.batch_size) for it in facts.loaders if it.trains}
    if len(loaders) != 1 or not steps.samples:
        return None
    _, length, batch_size = loaders.pop()
    if not length or not batch_size:
        return None
    batches_per_step = max(1, round(median(steps.samples) / batch_size))
    return max(1, math.ceil(length / batches_per_step))


def _columns(steps: Steps) -> tuple[Sequence[float], ...]:
    nothing = (0.0,) * len(steps.wall_seconds)
    evaluation, checkpoints = steps.evaluation_seconds or nothing, steps.checkpoint_seconds or nothing
    outside = steps.outside_seconds or nothing
    other = tuple(max(0.0, all_of - a - b) for all_of, a, b in zip(outside, evaluation, checkpoints, strict=True))
    return evaluation, checkpoints, other


def _part(kind: OutsideKind, blocks: _Blocks, epoch_steps: int | None, share: Estimate) -> OutsidePart:
    return OutsidePart(
        kind=kind,
        blocks=len(blocks),
        seconds=fmean(blocks.values()),
        every_steps=_every_steps(blocks, epoch_steps),
        at_epoch_ends=_at_epoch_ends(blocks, epoch_steps),
        share=share,
    )


def _at_epoch_ends(blocks: _Blocks, epoch_steps: int | None) -> bool:
    return epoch_steps is not None and all(row % epoch_steps == 0 for row in blocks)


def _every_steps(blocks: _Blocks, epoch_steps: int | None) -> float | None:
    """The steps between two blocks of one kind; None if unknown."""
    rows = list(blocks)
    if len(rows) > 1:
        return (rows[-1] - rows[0]) / (len(rows) - 1)
    return float(epoch_steps) if epoch_steps and _at_epoch_ends(blocks, epoch_steps) else None


def _cost(blocks: _Blocks, epoch_steps: int | None, steps: int) -> _PerStep:
    seconds, every = list(blocks.values()), _every_steps(blocks, epoch_steps)
    mean = fmean(seconds)
    if every is None:
        row = next(iter(blocks))
        return _PerStep(mean / (steps - 1), 0.0, mean / max(row, steps - row))
    margin = 0.0
    if len(seconds) >= _FEWEST_BLOCKS_WITH_INTERVAL:
        margin = quantile(0.975, len(seconds) - 1) * stdev(seconds) / math.sqrt(len(seconds))
    # Few blocks that differ much give a useless interval: none took less than the shortest.
    return _PerStep(mean / every, max(min(seconds), mean - margin) / every, (mean + margin) / every)


def _share(cost: _PerStep, others: Sequence[_PerStep]) -> Estimate:
    """The share of one cost in the sum of it and the others."""

    def part(own: float, rest: float) -> float:
        return own / (own + rest) if own > 0 else 0.0

    return Estimate(
        value=part(cost.value, math.fsum(it.value for it in others)),
        low=part(cost.low, math.fsum(it.high for it in others)),
        high=part(cost.high, math.fsum(it.low for it in others)),
        unit=UNIT,
    )


def _others(costs: dict[OutsideKind, _PerStep], kind: OutsideKind, step: _PerStep) -> list[_PerStep]:
    return [step, *(it for other, it in costs.items() if other != kind)]


def _whole(run: Run, step_share: Estimate) -> dict[str, float | None]:
    """The share of start-up in a run of known length, and its upper bound."""
    after = math.fsum((*run.steps.wall_seconds[1:], *run.steps.outside_seconds[1:]))
    whole = run.startup_seconds + after
    if isinstance(run.ending, Completed) and run.startup_seconds > 0 and whole > 0:
        remaining = run.startup_seconds + after * (1 - step_share.high)
        return {"startup_share": run.startup_seconds / whole, "most_speedup": whole / remaining}
    return {"most_speedup": 1 / (1 - step_share.high) if step_share.high < 1 else None}
