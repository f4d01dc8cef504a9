"""Figures of a comparison besides the speedup: the reference's seconds per sample, energy, and start-up time.

Each replicate gives one number for each arm, and intervals are Student's over replicates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, median, stdev

from hotlap.measure import student
from hotlap.records import EnergyComparison, EnergySource, Estimate, Replicate, Run

_FEWEST_STEADY_STEPS = 8


def seconds_per_sample(replicates: Sequence[Replicate], arms: Sequence[int], *, confidence: float) -> Estimate | None:
    """The wall seconds per sample of arms with the same plan; None with fewer than two replicates, or if samples could
    not be counted."""
    blocks = [run.blocks for it in replicates for run in it.runs]
    counted = all(blocks) and all(block.samples > 0 for row in blocks for block in row)
    if len(replicates) < 2 or not counted or not all(it.rounds[arm] for it in replicates for arm in arms):
        return None
    rows = [[seconds for arm in arms for seconds in it.rounds[arm]] for it in replicates]
    return geometric([fmean(map(math.log, it)) for it in rows], "s", confidence)


def energy(
    replicates: Sequence[Replicate], *, confidence: float, arms: tuple[int, int] = (0, 2)
) -> EnergyComparison | None:
    """The joules per sample of the arm ``arms[1]`` and of its baseline ``arms[0]``.

    Device energy if the script trains on one, else processor energy. None if it is known in fewer than two replicates.
    """
    source = _source(replicates, arms)
    if source is None:
        return None
    pairs = [
        (joules_per_sample(it.runs[arms[0]], source), joules_per_sample(it.runs[arms[1]], source)) for it in replicates
    ]
    logs = [(math.log(one), math.log(other)) for one, other in pairs if one and other]
    if len(logs) < 2:
        return None
    return EnergyComparison(
        source=source,
        baseline_joules_per_sample=geometric([one for one, _ in logs], "J", confidence),
        candidate_joules_per_sample=geometric([other for _, other in logs], "J", confidence),
        ratio=geometric([other - one for one, other in logs], "", confidence),
        replicates=len(logs),
        confidence=confidence,
    )


def joules_per_sample(run: Run, source: EnergySource) -> float | None:
    """Joules per sample over the timed blocks with known energy, except warm-up; None if there are none."""
    blocks = run.blocks[run.warm_up_blocks :]
    known = [
        (it.processor_energy_joules if source == "processor-counter" else it.device_energy_joules, it.samples)
        for it in blocks
    ]
    joules = math.fsum(joules for joules, _ in known if joules is not None)
    samples = sum(samples for joules, samples in known if joules is not None)
    return joules / samples if samples > 0 and joules > 0 else None


def extra_startup_seconds(
    replicates: Sequence[Replicate], *, confidence: float, arms: tuple[int, int] = (0, 2)
) -> Estimate | None:
    """The additional seconds of start-up and warm-up of the arm ``arms[1]`` over ``arms[0]``.

    None if they are known in fewer than two replicates. The arms of a replicate start at the same time, so that both
    are slowed down alike. They are those of a first run: where an arm loaded what an earlier launch had compiled, a
    replicate says only how much such differences vary.
    """
    loading: list[float] = []
    compiling: list[float] = []
    for runs in (it.runs for it in replicates):
        one, other = startup_seconds(runs[arms[0]]), startup_seconds(runs[arms[1]])
        if one is not None and other is not None:
            loads = any(runs[it].compile.loaded for it in arms)
            (loading if loads else compiling).append(other - one)
    varying = max(loading, compiling, key=len)
    if not compiling or len(varying) < 2:
        return None
    mean = fmean(compiling)
    half_width = _interval(varying, confidence)[1] * math.sqrt(len(varying) / len(compiling))
    return Estimate(value=mean, low=mean - half_width, high=mean + half_width, unit="s")


def startup_seconds(run: Run) -> float | None:
    """Seconds until steady state: those until the end of the first step, and the excess of the warm-up's other steps.

    None if too few steps came after the warm-up.
    """
    warm_up = 1 + sum(block.steps + 1 for block in run.blocks[: run.warm_up_blocks])  # each is led in with a step
    walls = run.steps.wall_seconds
    steady = walls[warm_up:]
    if not run.startup_seconds or len(steady) < _FEWEST_STEADY_STEPS:
        return None
    usual = median(steady)
    return run.startup_seconds + math.fsum(it - usual for it in walls[1:warm_up])


def geometric(logarithms: Sequence[float], unit: str, confidence: float) -> Estimate:
    """The geometric mean, with its interval, of at least two numbers given by their logarithms."""
    mean, half_width = _interval(logarithms, confidence)
    return Estimate(value=math.exp(mean), low=math.exp(mean - half_width), high=math.exp(mean + half_width), unit=unit)


def _source(replicates: Sequence[Replicate], arms: tuple[int, int]) -> EnergySource | None:
    runs = [it.runs[arm] for it in replicates for arm in arms]
    blocks = [block for run in runs for block in run.blocks[run.warm_up_blocks :]]
    if any(run.facts.device != "cpu" for run in runs):
        if not any(it.device_energy_joules is not None for it in blocks):
            return None
        return "device-power" if any(it.device_power_sampled for it in blocks) else "device-counter"
    return "processor-counter" if any(it.processor_energy_joules is not None for it in blocks) else None


def _interval(values: Sequence[float], confidence: float) -> tuple[float, float]:
    """The mean, and half the width of Student's interval."""
    reach = student.quantile((1 + confidence) / 2, len(values) - 1)
    return fmean(values), reach * stdev(values) / math.sqrt(len(values))
