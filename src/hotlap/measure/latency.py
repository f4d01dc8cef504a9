"""Percentiles of the calls of an inference target.

The interval of a percentile needs no assumption about the distribution of latencies: the number of n independent calls
below a percentile is binomial, which gives the two sorted calls that bound it (David and Nagaraja, *Order Statistics*,
7.1).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from hotlap.records import Estimate, Latency, LatencyPercentile, Replicate, Run

SHARES = (0.5, 0.9, 0.99)
_REACH = 10.0
"""Standard deviations from the mean beyond which binomial probabilities are neglected."""


def latency(replicates: Sequence[Replicate], arm: int, *, confidence: float) -> Latency | None:
    """The timed calls of an arm in all replicates; None if its steps are not calls."""
    return latency_of([seconds for it in replicates for seconds in timed_calls(it.runs[arm])], confidence)


def latency_of(seconds: Sequence[float], confidence: float) -> Latency | None:
    """The percentiles of these times; None without any."""
    calls = sorted(seconds)
    if not calls:
        return None
    found = ((share, percentile(calls, share, confidence)) for share in SHARES)
    return Latency(
        calls=len(calls),
        worst_seconds=calls[-1],
        percentiles=tuple(LatencyPercentile(share=share, seconds=it) for share, it in found if it is not None),
        confidence=confidence,
    )


def timed_calls(run: Run) -> Iterator[float]:
    """The seconds of each call in the blocks that count."""
    seconds = run.steps.seconds_in("forward")
    yield from (seconds[row] for row in timed_steps(run) if row < len(seconds))


def timed_steps(run: Run) -> Iterator[int]:
    """The rows of calls in the blocks that count: not those of warm-up, nor the first after each pause."""
    if run.facts.step_source != "call":
        return
    for block in run.blocks[run.warm_up_blocks :]:
        if block.first_step is not None:
            yield from range(block.first_step, min(block.first_step + block.steps, len(run.steps.wall_seconds)))


def percentile(calls: Sequence[float], share: float, confidence: float) -> Estimate | None:
    """The smallest of the sorted ``calls`` that at least a ``share`` of them do not exceed, with its interval.

    None with too few calls for a two-sided interval.
    """
    count = len(calls)
    tail = (1 - confidence) / 2
    middle, reach = count * share, _REACH * math.sqrt(count * share * (1 - share))
    low, high, below = None, None, 0.0
    for number in range(max(0, math.floor(middle - reach)), min(count, math.ceil(middle + reach))):
        below += _chance(number, count, share)  # the probability that at most so many calls are below the percentile
        if below <= tail:
            low = number
        if below >= 1 - tail:
            high = number
            break
    if low is None or high is None:
        return None
    value = calls[max(0, math.ceil(share * count) - 1)]
    return Estimate(value=value, low=calls[low], high=calls[high], unit="s")


def _chance(number: int, count: int, share: float) -> float:
    """The probability of exactly so many successes in ``count`` trials."""
    ways = math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1)
    return math.exp(ways + number * math.log(share) + (count - number) * math.log1p(-share))
