"""Time one batch size against the script's own, in replicates that take turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import fmean, median

from hotlap import plan as plans_of
from hotlap.experiment.comparing import peak_bytes
from hotlap.experiment.costs import FEWEST_BLOCK_STEPS, FEWEST_ROUNDS, Shape
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.failures import Failure
from hotlap.experiment.replicates import Design, Replication, replicate
from hotlap.experiment.trials import Arm, Trials
from hotlap.measure.levels import geometric
from hotlap.measure.speed import HEADLINE_CONFIDENCE
from hotlap.records import BatchRate, Completed, OutOfMemory, Replicate, Run, Stage, Stopped

REPLICATES = 3
"""Replicates per size."""

LONG_BLOCK_SECONDS = 1.5
"""A block that takes this long needs no more steps: those of a large batch may take seconds each."""

_OWN, _OTHER = 0, 1
_ALIKE = 0.1


@dataclass(kw_only=True)
class SizeTimer:
    """Times the sizes one after the other. ``arms`` are the script's own size and ``scale`` times it, ``samples`` those
    of a step of the unmodified script, and ``what`` is what is timed, for progress."""

    trials: Trials
    draft: StudyDraft
    samples: float
    arms: Callable[[float], tuple[Arm, Arm]]
    what: str
    stage: Stage = "trial"
    replicates: list[Replicate] = field(default_factory=list)

    def timed(self, scale: float) -> BatchRate:
        """The samples per second at this size, or ``error`` if it did not work."""
        shape = shape_of(self.trials, scale)
        found = self._replicated(scale, shape)
        if shape is not None and found.failure is not None and isinstance(found.failure.ending, Completed):
            found = self._replicated(scale, None)  # a script that ends early gets the shortest blocks that are usual
        if found.failure is not None:
            memory = isinstance(found.failure.ending, OutOfMemory)
            return self.failed(scale, found.failure.reason, out_of_memory=memory)
        replicates = found.replicates
        self.replicates += replicates
        ratios = [_log(it, _OWN) - _log(it, _OTHER) for it in replicates]
        return BatchRate(
            scale=scale,
            samples_per_step=scale * self.samples,
            seconds_per_sample=math.exp(fmean(_log(it, _OTHER) for it in replicates)),
            speedup=geometric(ratios, "x", HEADLINE_CONFIDENCE),
            confidence=HEADLINE_CONFIDENCE,
            peak_bytes=max(peak_bytes(it.runs[_OTHER]) for it in replicates),
        )

    def _replicated(self, scale: float, shape: Shape | None) -> Replication:
        design = Design(
            arms=self.arms(scale),
            purpose=f"batch size {scale:g}",
            analyses=(REPLICATES,),
            rounds=FEWEST_ROUNDS,
            shape=shape,
            accept=lambda turns: _of_the_size(turns, scale),
            measured="batch-sizes",
            compares=False,
            stage=self.stage,
            label=f"{self.what}, {scale * self.samples:g} samples per step",
        )
        return replicate(self.trials, self.draft, design)

    def own(self) -> BatchRate:
        """The script's own size, from the replicates of all other sizes."""
        return BatchRate(
            scale=1.0,
            samples_per_step=self.samples,
            seconds_per_sample=math.exp(fmean(_log(it, _OWN) for it in self.replicates)),
            peak_bytes=max(peak_bytes(it.runs[_OWN]) for it in self.replicates),
        )

    def failed(self, scale: float, reason: str, *, out_of_memory: bool = False) -> BatchRate:
        """A size that was not measured."""
        return BatchRate(scale=scale, samples_per_step=scale * self.samples, error=reason, out_of_memory=out_of_memory)

    def judge(self) -> None:
        """Note whether other processes disturbed the timing."""
        self.draft.judge("batch-sizes", [run for turns in self.replicates for run in turns.runs])


def shape_of(trials: Trials, scale: float) -> Shape | None:
    """How blocks are cut where the larger of the two steps is long; None where they are cut as usual."""
    usual = trials.costs.shape
    steps = math.ceil(LONG_BLOCK_SECONDS / (max(1.0, scale) * usual.step_seconds))
    return (
        None
        if steps >= usual.block_steps
        else replace(usual, block_steps=max(FEWEST_BLOCK_STEPS, steps), block_turns=1)
    )


def cost_of(trials: Trials, scale: float) -> float:
    """The seconds that timing a size may take: a step of a larger batch takes at most as many times as long."""
    shape = shape_of(trials, scale) or trials.costs.shape
    other = replace(shape, step_seconds=max(1.0, scale) * shape.step_seconds)
    return REPLICATES * sum(trials.costs.of_replicate((plans_of.EMPTY,), FEWEST_ROUNDS, it) for it in (shape, other))


def samples_of(run: Run) -> float:
    """The samples of a typical step of a run."""
    return median(run.steps.samples) if run.steps.samples else 1.0


def is_scaled(own: float, other: float, scale: float) -> bool:
    """Whether steps of ``other`` samples are ``scale`` times as large as the script's own."""
    return abs(other / (scale * own) - 1) <= _ALIKE


def _of_the_size(turns: Replicate, scale: float) -> Failure | None:
    """A failure if the other arm's batches do not have the requested size."""
    own, other = (samples_of(turns.runs[arm]) for arm in (_OWN, _OTHER))
    if is_scaled(own, other, scale):
        return None
    return Failure(_OTHER, Stopped(), "Its batches cannot be enlarged or reduced.")


def _log(turns: Replicate, arm: int) -> float:
    return fmean(map(math.log, turns.rounds[arm]))
