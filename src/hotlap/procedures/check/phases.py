"""The change of each phase of a step, as a share of the step before, with an interval over replicates.

As for speed, each replicate gives one number per phase, and rounds are never counted as if they were launches. Six
phases are tested together, so each interval has the confidence of Bonferroni's correction: for a script that did not
change, a phase is named in at most 5 % of checks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from hotlap.experiment.comparing import BASELINE, CANDIDATE
from hotlap.measure import student
from hotlap.measure.account import warm_up_steps
from hotlap.records import STEP_PHASES, Estimate, PhaseShift, Replicate, Run

_FAMILY_ALPHA = 0.05
_FEWEST_REPLICATES = 3


def phase_shifts(replicates: Sequence[Replicate]) -> tuple[PhaseShift, ...]:
    """The change of every phase between the two sides; none with too few time accounts."""
    known = [
        (before, now)
        for turns in replicates
        if (before := _per_sample(turns.runs[BASELINE])) is not None
        and (now := _per_sample(turns.runs[CANDIDATE])) is not None
    ]
    if len(known) < _FEWEST_REPLICATES:
        return ()
    return tuple(_shift(position, known) for position in range(len(STEP_PHASES)))


def _shift(position: int, known: Sequence[tuple[_Seconds, _Seconds]]) -> PhaseShift:
    confidence = 1 - _FAMILY_ALPHA / len(STEP_PHASES)
    changes = [(now[position] - before[position]) / math.fsum(before) for before, now in known]
    margin = student.quantile((1 + confidence) / 2, len(changes) - 1) * stdev(changes) / math.sqrt(len(changes))
    value = fmean(changes)
    return PhaseShift(
        phase=STEP_PHASES[position],
        before_share=fmean(before[position] / math.fsum(before) for before, _ in known),
        change=Estimate(value=value, low=value - margin, high=value + margin, unit="of the step before"),
        confidence=confidence,
    )


_Seconds = tuple[float, ...]


def _per_sample(run: Run) -> _Seconds | None:
    """Seconds per sample of each phase in the timed steps of a run; None if they were not split into phases."""
    steps = run.steps
    columns = [steps.seconds_in(phase)[_warm_up_rows(run) :] for phase in STEP_PHASES]
    samples = steps.samples[_warm_up_rows(run) :]
    rows = len(steps.wall_seconds) - _warm_up_rows(run)
    if rows <= 0 or any(len(it) != rows for it in columns):
        return None
    units = sum(samples) if len(samples) == rows and all(samples) else rows
    seconds = tuple(math.fsum(it) / units for it in columns)
    return seconds if math.fsum(seconds) > 0 else None


def _warm_up_rows(run: Run) -> int:
    """The number of rows before the first timed block. Each block has one additional step before it."""
    timed = sum(it.steps + 1 for it in run.blocks[run.warm_up_blocks :])
    rows = len(run.steps.wall_seconds)
    return max(warm_up_steps(run.steps), rows - timed) if timed else warm_up_steps(run.steps)
