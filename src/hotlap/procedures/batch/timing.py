"""Time one batch size against the script's own, in replicates that take turns."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean, median

from hotlap.experiment.comparing import peak_bytes
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Arm, Failure, Trials
from hotlap.measure.levels import geometric
from hotlap.measure.speed import HEADLINE_CONFIDENCE
from hotlap.records import BatchRate, OutOfMemory, Replicate, Run, Stage, Stopped

REPLICATES = 3
"""Replicates per size."""

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
        design = Design(
            arms=self.arms(scale),
            purpose=f"batch size {scale:g}",
            analyses=(REPLICATES,),
            rounds=FEWEST_ROUNDS,
            accept=lambda turns: _of_the_size(turns, scale),
            measured="batch-sizes",
            compares=False,
            stage=self.stage,
            label=f"{self.what}, {scale * self.samples:g} samples per step",
        )
        found = replicate(self.trials, self.draft, design)
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
