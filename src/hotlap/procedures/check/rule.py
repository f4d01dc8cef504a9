"""Decide whether a script is slower, with bounds on both kinds of error.

At each interim analysis (:data:`hotlap.measure.speed.ANALYSES`) with its alpha: *slower* when the whole two-sided
interval of confidence 1 - alpha is below 1 and the estimate is at least delta below it; *not slower* when the one-sided
interval of confidence 1 - alpha is above what delta allows (a test of non-inferiority). The alphas of all analyses add
up to 5 %, so a script that did not change fails in at most 2.5 % of checks, and one that became slower by delta passes
in at most 5 %. Everything between is inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.experiment.comparing import compare_replicates
from hotlap.measure import speed, student
from hotlap.records import CheckVerdict, Estimate, RecordedGain, Replicate, SpeedComparison


def limit_of(delta: float) -> float:
    """The ratio of speeds at which a slowdown counts."""
    return 1 / (1 + delta)


def analyse(
    replicates: Sequence[Replicate], recorded: RecordedGain | None, delta: float
) -> tuple[CheckVerdict, Estimate, float, SpeedComparison]:
    """The verdict after so many replicates, the judged ratio, the end of its one-sided interval, and the comparison.

    Nothing is decided while the baseline differs from its repeat.
    """
    alpha = speed.alpha_at(len(replicates))
    found = compare_replicates(replicates, delta=delta, confidence=1 - alpha)
    one_sided = compare_replicates(replicates, delta=delta, confidence=1 - 2 * alpha)
    judged, at_least = found.speedup, one_sided.speedup.low
    if recorded is not None:
        judged = share_of(found.speedup, recorded, 1 - alpha)
        at_least = share_of(one_sided.speedup, recorded, 1 - 2 * alpha).low
    return decide(judged, at_least, delta, agrees=found.baseline_agrees), judged, at_least, found


def is_decided(replicates: Sequence[Replicate], recorded: RecordedGain | None, delta: float) -> bool:
    """Whether the analysis of these replicates gives a verdict."""
    return analyse(replicates, recorded, delta)[0] != "inconclusive"


def decide(judged: Estimate, at_least: float, delta: float, *, agrees: bool) -> CheckVerdict:
    """The rule, for a baseline that ``agrees`` with itself."""
    if not agrees:
        return "inconclusive"
    if judged.high < 1 and judged.value <= limit_of(delta):
        return "failed"
    return "passed" if at_least > limit_of(delta) else "inconclusive"


def share_of(today: Estimate, recorded: RecordedGain, confidence: float) -> Estimate:
    """The present speedup as a share of the recorded one, both with uncertainty.

    The interval of a difference (here of logarithms) from the intervals of its two parts: Zou and Donner (2008),
    *Construction of confidence limits about effect measures*. The recorded interval is first converted to the
    ``confidence`` of the present one.
    """
    then = recorded.speedup
    degrees = recorded.replicates - 1
    widened = student.quantile((1 + confidence) / 2, degrees) / student.quantile((1 + recorded.confidence) / 2, degrees)
    below = math.hypot(math.log(today.value / today.low), widened * math.log(then.high / then.value))
    above = math.hypot(math.log(today.high / today.value), widened * math.log(then.value / then.low))
    value = today.value / then.value
    return Estimate(value=value, low=value * math.exp(-below), high=value * math.exp(above), unit="x")
