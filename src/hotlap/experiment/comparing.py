"""Compare the arms of the same replicates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

import msgspec

from hotlap.experiment.failures import Failure
from hotlap.measure import levels, speed
from hotlap.measure.disturbance import disturbances
from hotlap.measure.latency import latency
from hotlap.measure.metrics.api import compare_metrics
from hotlap.measure.open_loop import compare_loads
from hotlap.measure.tokens import generation_times
from hotlap.records import Comparison, Objective, Plan, Replicate, Run, SpeedComparison, Stopped

BASELINE, REPEAT, CANDIDATE = range(3)


def compare_replicates(
    replicates: Sequence[Replicate], *, delta: float, confidence: float, arms: tuple[int, int, int] = (0, 1, 2)
) -> SpeedComparison:
    """Compare the arm ``arms[2]`` with ``arms[0]`` and its repeat, ``arms[1]``."""
    runs = [run for it in replicates for run in it.runs]
    remarks = list(disturbances(runs))
    if not all(it.interleaved for it in replicates):
        remarks.append("There was room for only one launch at a time, so whole launches were alternated.")
    baseline, repeat, candidate = ([it.rounds[arm] for it in replicates] for arm in arms)
    return speed.compare(baseline, repeat, candidate, delta=delta, confidence=confidence, remarks=remarks)


def comparison_of(
    reference: Plan,
    candidate: Plan,
    replicates: Sequence[Replicate],
    found: SpeedComparison,
    *,
    reference_arm: int = BASELINE,
    candidate_arm: int = CANDIDATE,
) -> Comparison:
    """The record of a comparison: speed, memory peaks, the reference's seconds per sample, start-up and energy.

    Other metrics are compared only if the reference ran twice: its repeat is their gate.
    """
    arms = (reference_arm, candidate_arm)
    ran_twice = reference_arm == BASELINE
    references = (BASELINE, REPEAT) if ran_twice else (reference_arm,)
    return Comparison(
        baseline=reference,
        candidate=candidate,
        speed=found,
        baseline_peak_bytes=largest_peak_bytes(replicates, reference_arm),
        candidate_peak_bytes=largest_peak_bytes(replicates, candidate_arm),
        metrics=compare_metrics(replicates, confidence=found.confidence, arms=(BASELINE, REPEAT, candidate_arm))
        if ran_twice
        else (),
        baseline_seconds_per_sample=levels.seconds_per_sample(replicates, references, confidence=found.confidence),
        extra_startup_seconds=levels.extra_startup_seconds(replicates, confidence=found.confidence, arms=arms),
        energy=levels.energy(replicates, confidence=found.confidence, arms=arms),
        baseline_latency=latency(replicates, reference_arm, confidence=found.confidence),
        candidate_latency=latency(replicates, candidate_arm, confidence=found.confidence),
        baseline_generation=generation_times(replicates, reference_arm, confidence=found.confidence),
        candidate_generation=generation_times(replicates, candidate_arm, confidence=found.confidence),
    )


def with_load(comparison: Comparison, replicates: Sequence[Replicate], objective: Objective) -> Comparison:
    """The same, with the arrivals that keep the required p99, if there is one."""
    most = objective.p99_seconds
    if most is None:
        return comparison
    load = compare_loads(replicates, most, confidence=comparison.speed.confidence, arms=(BASELINE, CANDIDATE))
    return msgspec.structs.replace(comparison, load=load)


def compare_parts(
    replicates: Sequence[Replicate], *, delta: float, confidence: float, reference_arm: int, candidate_arm: int
) -> SpeedComparison:
    """Compare two arms without a repeat.

    The gate is the difference between the baseline (arm 0) and its repeat (arm 1) in the same rounds.
    """
    baseline, repeat, reference, candidate = (
        [it.rounds[arm] for it in replicates] for arm in (BASELINE, REPEAT, reference_arm, candidate_arm)
    )
    return speed.compare_single(reference, candidate, gate=(baseline, repeat), delta=delta, confidence=confidence)


def comparison_within_launch(
    reference: Plan,
    candidate: Plan,
    turns: Replicate,
    *,
    delta: float,
    arms: tuple[Sequence[int], Sequence[int]],
) -> Comparison:
    """Compare the means of some arms (reference, candidate) of a single launch whose arms 0 and 1 are the same.

    Of these two the mean counts, wherever the first is meant: what one of them has by chance is no gain. Memory is
    compared on a device alone, whose allocator counts each configuration's peak: on the host the process has one.
    """
    before, after = (_rounds_within_launch(turns, it) for it in arms)
    again = speed.repeat_of(before, turns.rounds[BASELINE], turns.rounds[REPEAT])
    found = speed.compare_within_launch(before, again, after, delta=delta)
    was, became = (_mean_peak_bytes([turns.runs[arm] for arm in it]) for it in arms)
    return Comparison(
        baseline=reference,
        candidate=candidate,
        speed=found,
        within_launch=True,
        baseline_peak_bytes=was,
        candidate_peak_bytes=became,
    )


def _mean_peak_bytes(configurations: Sequence[Run]) -> int:
    """The mean of the peaks of configurations of one process; 0 where they were not told apart."""
    told_apart = all(any(it.device_peak_bytes for it in run.blocks) for run in configurations)
    return round(fmean(run.device_peak_bytes for run in configurations)) if told_apart else 0


def _rounds_within_launch(turns: Replicate, arms: Sequence[int]) -> list[float]:
    """The geometric mean of these arms in each round; of the first one, that of both equal arms."""
    twice = [one for it in arms for one in ((BASELINE, REPEAT) if it == BASELINE else (it, it))]
    rows = zip(*(turns.rounds[it] for it in twice), strict=True)
    return [math.exp(fmean(map(math.log, row))) for row in rows]


def peak_bytes(run: Run) -> int:
    """The device's peak if there is one, else the host's."""
    return run.device_peak_bytes or run.host_peak_bytes


def launch_noise(replicates: Sequence[Replicate]) -> list[float]:
    """The difference between the reference and its repeat in each replicate, as logarithms."""
    return [_log_ratio(it.rounds[BASELINE], it.rounds[REPEAT]) for it in replicates]


def divergence(reference: Run, candidate: Run) -> Failure | None:
    """A sentence if the loss became NaN or infinite while the reference's stayed finite."""
    reached = len(reference.steps.wall_seconds)
    rows = [row for row in candidate.steps.not_finite if row < reached]
    if not rows or reference.steps.not_finite:
        return None
    return Failure(CANDIDATE, Stopped(), f"It diverged: from step {rows[0] + 1} on the loss is no longer finite.")


def _log_ratio(one: Sequence[float], other: Sequence[float]) -> float:
    return fmean(math.log(a / b) for a, b in zip(one, other, strict=True))


def largest_peak_bytes(replicates: Sequence[Replicate], arm: int) -> int:
    """The largest peak of an arm's launches; 0 if there is none."""
    return max((peak_bytes(it.runs[arm]) for it in replicates), default=0)
