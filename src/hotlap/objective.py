"""Judge a comparison by an objective: whether its metric is better, and whether its limits are kept.

This uses only stored intervals, so that a saved study gets the same verdict again. A claim needs the metric and every
limit at once, each at the confidence of its interval; together they make a false claim no more often than one alone (an
intersection-union test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from hotlap.records import (
    EVALUATION_SECONDS,
    MEDIAN_CALL_SECONDS,
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    Candidate,
    Comparison,
    Estimate,
    InferenceGoal,
    Judgement,
    Latency,
    Limit,
    LimitJudgement,
    LimitState,
    MetricComparison,
    MetricVerdict,
    Objective,
    SpeedComparison,
    SpeedVerdict,
)

NOTHING_USED: Final[Mapping[str, float]] = MappingProxyType({})
"""The use of the unmodified script of what is limited."""

RESTING_BYTES: Final = "resting_bytes"
"""The metric of an inference target's memory before its first call."""

PEAKS = ("device_peak_bytes", "host_peak_bytes")
"""The metrics behind ``peak_bytes``; the first known one counts."""

USUAL_SLOWDOWN = 1.1
"""The default slowdown of a step that saving memory, or a faster evaluation, may cost."""

WITHIN_A_SLOWDOWN: Final[Mapping[str, str]] = MappingProxyType({PEAK_BYTES: "memory", EVALUATION_SECONDS: "evaluation"})
"""Metrics that are improved while steps take at most so many times as long, with their goals on a command line."""

_OF_SPEED: Final[Mapping[SpeedVerdict, MetricVerdict]] = MappingProxyType(
    {"faster": "better", "slower": "worse", "no-effect": "no-effect", "inconclusive": "inconclusive"}
)


def for_memory(slowdown: float = USUAL_SLOWDOWN) -> Objective:
    """The smallest peak memory, with steps at most so many times as long."""
    return Objective(metric=PEAK_BYTES, limits=(Limit(metric=SECONDS_PER_SAMPLE, most=slowdown),))


def for_evaluation(slowdown: float = USUAL_SLOWDOWN) -> Objective:
    """The shortest evaluation, with training steps at most so many times as long."""
    return Objective(metric=EVALUATION_SECONDS, limits=for_memory(slowdown).limits)


def for_inference(goal: InferenceGoal, *, slowdown: float = USUAL_SLOWDOWN, p99_seconds: float | None) -> Objective:
    """The objective of a model's calls: samples per second, median latency, or memory."""
    if goal == "memory":
        return Objective(metric=PEAK_BYTES, limits=for_memory(slowdown).limits, p99_seconds=p99_seconds)
    metric = MEDIAN_CALL_SECONDS if goal == "latency" else SECONDS_PER_SAMPLE
    return Objective(metric=metric, p99_seconds=p99_seconds)


def slowdown_of(objective: Objective) -> float | None:
    """The slowdown of an objective of :func:`for_memory` or :func:`for_evaluation`; None for any other."""
    limits = {it.metric: it.most for it in objective.limits}
    most = limits.get(SECONDS_PER_SAMPLE)
    if most is None or objective.metric not in WITHIN_A_SLOWDOWN or objective.limits != for_memory(most).limits:
        return None
    return most


def option_words(objective: Objective) -> list[str]:
    """The options of a command that select an objective; empty for the default one."""
    slowdown, p99 = slowdown_of(objective), objective.p99_seconds
    words = ["--goal", "latency"] if objective.metric == MEDIAN_CALL_SECONDS else []
    if slowdown is not None:
        words += ["--goal", WITHIN_A_SLOWDOWN[objective.metric], "--slowdown", f"{slowdown:g}"]
    return words + (["--p99", f"{1e3 * p99:g}ms"] if p99 is not None else [])


def p99_state(objective: Objective, calls: Latency | None) -> LimitState:
    """Whether the whole interval of the p99 is within the required one, which needs some hundred calls.

    ``kept`` if none is required.
    """
    most, found = objective.p99_seconds, p99_of(calls)
    if most is None or (found is not None and found.high <= most):
        return "kept"
    return "broken" if found is not None and found.low > most else "open"


def p99_of(calls: Latency | None) -> Estimate | None:
    """The p99 in seconds; None with too few calls."""
    known = calls.percentiles if calls is not None else ()
    return next((it.seconds for it in known if it.share == 0.99), None)


def is_speed(objective: Objective) -> bool:
    """Whether only speed counts, without limits."""
    return objective.metric == SECONDS_PER_SAMPLE and not objective.limits


def metric_of(comparison: Comparison, name: str) -> MetricComparison | None:
    """The comparison by one metric; None if it is unknown."""
    if name == SECONDS_PER_SAMPLE:
        return _of_speed(comparison.speed, comparison.baseline_seconds_per_sample)
    known = {it.metric: it for it in comparison.metrics}
    names = PEAKS if name == PEAK_BYTES else (name,)
    return next((known[it] for it in names if it in known), None)


def judge(objective: Objective, comparison: Comparison, used: Mapping[str, float] = NOTHING_USED) -> Judgement:
    """The verdict on a candidate.

    ``used`` is the baseline's use relative to the unmodified script: of a limit of 1.3, a baseline with 1.2 leaves a
    candidate 1.083.
    """
    found = metric_of(comparison, objective.metric)
    verdict: MetricVerdict = found.verdict if found is not None else "inconclusive"
    if not comparison.speed.baseline_agrees:
        verdict = "inconclusive"
    limits = tuple(_judged(it, metric_of(comparison, it.metric), used) for it in objective.limits)
    return Judgement(verdict=_together(verdict, limits), metric_verdict=verdict, limits=limits)


def gain(objective: Objective, comparison: Comparison) -> Estimate | None:
    """How many times better the metric became (above 1: better): a speedup, or the reduction of memory; None if
    unknown."""
    if objective.metric == SECONDS_PER_SAMPLE:
        return comparison.speed.speedup
    found = metric_of(comparison, objective.metric)
    return inverse(found.ratio) if found is not None else None


def pareto_front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The Pareto front of speed, the median time of a call, peak memory, memory at rest and quality, by estimates.

    What is unknown of one candidate counts for none. Candidates whose outputs were not compared, or are not finite, are
    not part of it.
    """
    known = [(it, found) for it in candidates if (found := _merits(it)) is not None]
    numbers = range(len(known[0][1])) if known else ()
    compared = [it for it in numbers if all(found[it] is not None for _, found in known)]
    rows = [tuple(found[it] or 0.0 for it in compared) for _, found in known]
    alike = zip(known, rows, strict=True)
    return tuple(it for (it, _), own in alike if not any(_dominates(other, own) for other in rows))


def _merits(it: Candidate) -> tuple[float | None, ...] | None:
    """The figures of a candidate; more is better of each, and what is unknown is None."""
    comparison = it.comparison
    quality = comparison.quality.likeness if comparison.quality is not None else None
    if quality is None:
        return None
    call, rest = (_level(comparison, name) for name in (MEDIAN_CALL_SECONDS, RESTING_BYTES))
    return comparison.speed.speedup.value, call, -float(comparison.candidate_peak_bytes), rest, quality


def _level(comparison: Comparison, metric: str) -> float | None:
    """The candidate's own level of a metric, less of which is better, as a negative figure; None if it is unknown."""
    found = metric_of(comparison, metric)
    return -found.candidate.value if found is not None and found.candidate is not None else None


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


def _together(verdict: MetricVerdict, limits: tuple[LimitJudgement, ...]) -> MetricVerdict:
    states = {it.state for it in limits}
    if verdict != "better":
        return verdict
    if "broken" in states:
        return "worse"
    return "inconclusive" if "open" in states else "better"


def _judged(limit: Limit, found: MetricComparison | None, used: Mapping[str, float]) -> LimitJudgement:
    left = limit.most / used.get(limit.metric, 1.0)
    state: LimitState = "open"
    if found is not None and found.ratio.high <= left:
        state = "kept"
    elif found is not None and found.ratio.low > left:
        state = "broken"
    return LimitJudgement(limit=limit, left=left, state=state)


def _of_speed(speed: SpeedComparison, level: Estimate | None) -> MetricComparison:
    return MetricComparison(
        metric=SECONDS_PER_SAMPLE,
        baseline=level,
        ratio=inverse(speed.speedup),
        verdict=_OF_SPEED[speed.verdict],
        replicates=speed.replicates,
        confidence=speed.confidence,
    )


def inverse(ratio: Estimate) -> Estimate:
    """The inverse of a ratio, which may be zero in a study from elsewhere."""
    value, low, high = (1 / it if it else math.inf for it in (ratio.value, ratio.high, ratio.low))
    return Estimate(value=value, low=low, high=high, unit="x")
