"""The largest rate of arriving calls at which 99 % of them are answered in time, waiting included.

MLPerf Inference defines this figure as the result of its server scenario: queries arrive as a Poisson process, and
what counts is the largest rate at which the required percentile of latency is kept (Reddi et al., *MLPerf Inference
Benchmark*, ISCA 2020, section IV). Latency runs from the scheduled arrival, whether or not the process is busy then, so
that no delay is omitted because an earlier call had not returned.

Here the rate is computed from the calls that a trial timed, and not found by serving. In a paired trial arms take
turns, so that whatever changes on the machine reaches all of them alike. Serving each arm at each rate of a search
would give this up: rates differ between arms, waiting for arrivals takes most of the time, and each rate needs many
thousands of arrivals (MLPerf's rules ask for 262,742 queries for 99 % confidence in a p99). For one process that
answers call after call, latencies follow from arrivals and service times alone: a call waits
``W' = max(0, W + S - T)``, with the wait ``W`` and the time ``S`` of the call before it and the time ``T`` between the
two arrivals (Lindley, *The theory of queues with a single server*, 1952). Service times are drawn from those of one
launch independently, as MLPerf's generator draws samples of its data set; all arms share arrivals and draws, and
intervals are over launches. What a server adds is not part of it: a network, conversions, batching, and what pauses
between calls do to caches and clock rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import fmean
from typing import Any

from hotlap.measure.latency import timed_calls
from hotlap.measure.levels import geometric
from hotlap.records import LoadComparison, LoadLimit, Replicate

SHARE = 0.99
FEWEST_CALLS = 100
"""With fewer timed calls in a launch, its 99th percentile is its worst call."""
MOST_BUSY = 0.95
"""The highest utilisation that is computed: closer to 1 a queue takes too long to reach its steady state."""
_SEQUENCES = 4
_ARRIVALS = 50_000
_NOT_COUNTED = 5_000
"""The first calls of each sequence, which find a queue that is shorter than usual."""
_BISECTIONS = 12
_SEED = 16


def compare_loads(
    replicates: Sequence[Replicate], p99_seconds: float, *, confidence: float, arms: tuple[int, int] = (0, 2)
) -> LoadComparison | None:
    """The rates of the arm ``arms[1]`` and of its baseline ``arms[0]``; None with fewer than two replicates, or where
    steps are no calls."""
    calls = [[list(timed_calls(it.runs[arm])) for it in replicates] for arm in arms]
    if len(replicates) < 2 or not all(calls[0]) or not all(calls[1]):
        return None
    shares = [_utilisations(launches, p99_seconds) for launches in calls]
    baseline, candidate = (_limit(launches, found, confidence) for launches, found in zip(calls, shares, strict=True))
    ratio = None
    if baseline.calls_per_second is not None and candidate.calls_per_second is not None:
        rates = [
            [busy / fmean(launch) for launch, busy in zip(*it, strict=True)] for it in zip(calls, shares, strict=True)
        ]
        ratio = geometric([math.log(b / a) for a, b in zip(*rates, strict=True)], "x", confidence)
    return LoadComparison(
        p99_seconds=p99_seconds,
        baseline=baseline,
        candidate=candidate,
        ratio=ratio,
        replicates=len(replicates),
        confidence=confidence,
        fewest_calls=FEWEST_CALLS,
        most_busy=MOST_BUSY,
    )


def largest_utilisation(calls: Sequence[float], p99_seconds: float) -> float:
    """The share of its time that a process may be busy, at most ``MOST_BUSY``, so that 99 % of calls keep
    ``p99_seconds``, waiting included; 0 if they do not even without a queue.

    Divided by the mean of ``calls`` it is a rate of arrivals. With the arrivals fixed, a shorter time between them
    makes no wait shorter, so that the largest utilisation is found by bisection.
    """
    import numpy

    draws, gaps = _randomness()
    known = numpy.asarray(calls, dtype=numpy.float64)
    service = known[(draws * len(known)).astype(numpy.int64)]
    between = gaps * known.mean()

    def keeps(busy: float) -> bool:
        return _percentile(service, between / busy) <= p99_seconds

    if numpy.partition(service[:, _NOT_COUNTED:].ravel(), _rank(service))[_rank(service)] > p99_seconds:
        return 0.0
    if keeps(MOST_BUSY):
        return MOST_BUSY
    low, high = 0.0, MOST_BUSY
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def waits(service: Any, between: Any) -> Any:
    """How long each call waits, by Lindley's recursion in closed form, along the last axis.

    ``service`` are the times of the calls, and ``between`` those from each arrival to the next one.
    """
    import numpy

    excess = numpy.cumsum(service - between, axis=-1)
    least = numpy.minimum.accumulate(numpy.minimum(excess, 0.0), axis=-1)
    waiting = numpy.zeros_like(excess)
    waiting[..., 1:] = (excess - least)[..., :-1]
    return waiting


def _percentile(service: Any, between: Any) -> float:
    import numpy

    latencies = (service + waits(service, between))[:, _NOT_COUNTED:].ravel()
    rank = _rank(service)
    return float(numpy.partition(latencies, rank)[rank])


def _rank(service: Any) -> int:
    """The place of the 99th percentile among the sorted latencies that count."""
    count = int(service.shape[0]) * int(service.shape[1] - _NOT_COUNTED)
    return math.ceil(SHARE * count) - 1


@lru_cache(maxsize=1)
def _randomness() -> tuple[Any, Any]:
    """Uniform numbers that choose calls, and exponential ones for the times between arrivals, of all sequences."""
    import numpy

    generator = numpy.random.default_rng(_SEED)
    shape = (_SEQUENCES, _ARRIVALS)
    return generator.random(shape), generator.exponential(size=shape)


def _utilisations(launches: Sequence[Sequence[float]], p99_seconds: float) -> list[float]:
    """Of each launch; empty where one has too few calls."""
    if min(map(len, launches)) < FEWEST_CALLS:
        return []
    return [largest_utilisation(it, p99_seconds) for it in launches]


def _limit(launches: Sequence[Sequence[float]], found: Sequence[float], confidence: float) -> LoadLimit:
    if not found:
        return LoadLimit(obstacle="too-few-calls")
    if not all(found):
        return LoadLimit(obstacle="too-slow")
    logs = [math.log(busy / fmean(calls)) for calls, busy in zip(launches, found, strict=True)]
    return LoadLimit(
        calls_per_second=geometric(logs, "1/s", confidence), busy=fmean(found), at_least=MOST_BUSY in found
    )
