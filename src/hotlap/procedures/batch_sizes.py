"""What the model alone makes of other batch sizes: samples per second and memory, with the first batch grown or cut.

Another batch size changes what is learned, so no plan ever holds one; the curve says whether it would be worth a
person's thought.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median

from hotlap import plan as plans_of
from hotlap.experiment.comparing import peak_bytes
from hotlap.experiment.costs import FEWEST_ROUNDS
from hotlap.experiment.draft import StudyDraft
from hotlap.experiment.observe import Observation
from hotlap.experiment.replicates import Design, replicate
from hotlap.experiment.trials import Arm, Failure, Trials
from hotlap.measure.levels import geometric
from hotlap.measure.speed import HEADLINE_CONFIDENCE
from hotlap.records import BatchRate, Machine, ReplayBatch, Run, Stopped, TurnSet

SCALES = (0.5, 2.0, 4.0)
SETS = 3

_OWN, _OTHER = 0, 1
_ALIKE = 0.1
_MEMORY_SHARE = 0.8


def measure_batch_sizes(
    trials: Trials, draft: StudyDraft, observation: Observation, machine: Machine
) -> tuple[BatchRate, ...]:
    """Time each size in sets of its own beside the script's own size, both fed from memory; the smallest comes first.

    Nothing where no batch came from a loader. A size that fails ends the search for larger ones.
    """
    if not observation.facts.training_loaders:
        draft.warn("Other batch sizes were not timed: no batch of the script comes from a DataLoader.")
        return ()
    return _Sizes(trials, draft, observation, machine).measure()


class _Sizes:
    def __init__(self, trials: Trials, draft: StudyDraft, observation: Observation, machine: Machine) -> None:
        self._trials = trials
        self._draft = draft
        self._run = observation.run
        self._samples = observation.account.samples_per_step
        self._machine = machine
        self._sets: list[TurnSet] = []

    def measure(self) -> tuple[BatchRate, ...]:
        rates: list[BatchRate] = []
        for scale in SCALES:
            reason = self._obstacle(scale, rates)
            rates.append(self._failed(scale, reason) if reason else self._timed(scale))
        if self._sets:
            rates.append(self._own())
            runs = [run for turns in self._sets for run in turns.runs]
            self._draft.judge("batch-sizes", runs)
        return tuple(sorted(rates, key=lambda it: it.scale))

    def _obstacle(self, scale: float, before: Sequence[BatchRate]) -> str:
        """Why a size is not tried; empty where nothing speaks against it."""
        failed = next((it for it in before if it.scale > 1 and it.error), None)
        if scale > 1 and failed is not None:
            return f"Not tried, because {failed.samples_per_step:g} did not work."
        if scale * self._samples < 1:
            return "Not tried: a step has only one sample."
        both = (1 + scale) * self._run.host_peak_bytes
        if self._run.facts.device.startswith("cpu") and both > _MEMORY_SHARE * self._machine.memory_bytes > 0:
            return "Not tried: next to the unmodified script, it might not fit into memory."
        cost = self._trials.costs.of_set([plans_of.EMPTY] * 2, FEWEST_ROUNDS)
        return "" if self._trials.fits(SETS * max(1.0, scale) * cost) else "Not tried: the budget is too small."

    def _timed(self, scale: float) -> BatchRate:
        design = Design(
            arms=(Arm(instruments=(ReplayBatch(),)), Arm(instruments=(ReplayBatch(scale=scale),))),
            purpose=f"batch size {scale:g}",
            looks=(SETS,),
            rounds=FEWEST_ROUNDS,
            accept=lambda turns: _of_the_size(turns, scale),
            measured="batch-sizes",
            compares=False,
            stage="ceilings",
            label=f"The model alone, {scale * self._samples:g} samples per step",
        )
        found = replicate(self._trials, self._draft, design)
        if found.failure is not None:
            return self._failed(scale, found.failure.reason)
        sets = found.sets
        self._sets += sets
        ratios = [_log(it, _OWN) - _log(it, _OTHER) for it in sets]
        return BatchRate(
            scale=scale,
            samples_per_step=scale * self._samples,
            seconds_per_sample=math.exp(fmean(_log(it, _OTHER) for it in sets)),
            speedup=geometric(ratios, "x", HEADLINE_CONFIDENCE),
            confidence=HEADLINE_CONFIDENCE,
            peak_bytes=max(peak_bytes(it.runs[_OTHER]) for it in sets),
        )

    def _own(self) -> BatchRate:
        return BatchRate(
            scale=1.0,
            samples_per_step=self._samples,
            seconds_per_sample=math.exp(fmean(_log(it, _OWN) for it in self._sets)),
            peak_bytes=max(peak_bytes(it.runs[_OWN]) for it in self._sets),
        )

    def _failed(self, scale: float, reason: str) -> BatchRate:
        return BatchRate(scale=scale, samples_per_step=scale * self._samples, error=reason)


def _of_the_size(turns: TurnSet, scale: float) -> Failure | None:
    """A failure where the other arm's batches are not of the size that was asked for."""
    own, other = (_samples(turns.runs[arm]) for arm in (_OWN, _OTHER))
    if abs(other / (scale * own) - 1) <= _ALIKE:
        return None
    return Failure(_OTHER, Stopped(), "Its batches cannot be enlarged or reduced.")


def _log(turns: TurnSet, arm: int) -> float:
    return fmean(map(math.log, turns.rounds[arm]))


def _samples(run: Run) -> float:
    return median(run.steps.samples) if run.steps.samples else 1.0
