"""What the file of a metric must contain, how all metrics are found, and how arms are compared by them.

Each replicate gives one figure for each arm, and intervals are Student's over the logarithms of their ratios. Speed,
which needs the rounds of a replicate, is not a metric of a launch.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from hotlap.measure.levels import geometric
from hotlap.records import Estimate, MetricComparison, MetricVerdict, Replicate, Run

_OWN_FILES = frozenset({"api"})


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of which less is better.

    ``of_run`` returns the figure of a launch in ``unit``, or 0 if it is unknown; ``smallest_change`` is the smallest
    relative change that counts as a difference.
    """

    name: str
    unit: str
    smallest_change: float
    of_run: Callable[[Run], float]


@cache
def all_metrics() -> Mapping[str, Metric]:
    """All metrics of the folder by name, in alphabetical order."""
    import hotlap.measure.metrics as metrics

    names = sorted(it.name for it in pkgutil.iter_modules(metrics.__path__) if it.name not in _OWN_FILES)
    return {name: _metric(name) for name in names}


def compare_metrics(
    replicates: Sequence[Replicate], *, confidence: float, arms: tuple[int, int, int] = (0, 1, 2)
) -> tuple[MetricComparison, ...]:
    """Compare the arm ``arms[2]`` with ``arms[0]`` by every metric; ``arms[1]`` is the baseline's repeat.

    Metrics that are unknown for a launch are left out, and there are none with fewer than two replicates. If the
    repeat differs from the baseline by more than the smallest change, no difference is claimed.
    """
    found = (_compared(metric, replicates, confidence, arms) for metric in all_metrics().values())
    return tuple(it for it in found if it is not None)


def _metric(name: str) -> Metric:
    module = importlib.import_module(f"hotlap.measure.metrics.{name}")
    return Metric(name=name, unit=module.unit, smallest_change=module.smallest_change, of_run=module.of_run)


def _compared(
    metric: Metric, replicates: Sequence[Replicate], confidence: float, arms: tuple[int, int, int]
) -> MetricComparison | None:
    rows = [[metric.of_run(it.runs[arm]) for arm in arms] for it in replicates]
    if len(rows) < 2 or not all(all(row) for row in rows):
        return None
    baseline, repeat, candidate = ([math.log(row[arm]) for row in rows] for arm in range(3))
    ratio = geometric(list(_differences(baseline, candidate)), "x", confidence)
    own = geometric(list(_differences(baseline, repeat)), "x", confidence)
    delta = metric.smallest_change
    return MetricComparison(
        metric=metric.name,
        baseline=geometric(baseline, metric.unit, confidence),
        candidate=geometric(candidate, metric.unit, confidence),
        ratio=ratio,
        verdict=_verdict(ratio, delta) if _reaches_into(own, delta) else "inconclusive",
        smallest_change=delta,
        replicates=len(rows),
        confidence=confidence,
    )


def _differences(baseline: Sequence[float], other: Sequence[float]) -> Iterator[float]:
    return (b - a for a, b in zip(baseline, other, strict=True))


def _verdict(ratio: Estimate, delta: float) -> MetricVerdict:
    """The verdict, by the rule for speeds.

    A difference is claimed if the interval excludes 1 and the estimate exceeds the smallest change; no difference, if
    the whole interval is within it.
    """
    if ratio.high < 1 and ratio.value <= 1 / (1 + delta):
        return "better"
    if ratio.low > 1 and ratio.value >= 1 + delta:
        return "worse"
    is_small = 1 / (1 + delta) < ratio.low and ratio.high < 1 + delta
    return "no-effect" if is_small else "inconclusive"


def _reaches_into(own: Estimate, delta: float) -> bool:
    """Whether the baseline agrees with its repeat: the interval overlaps with differences that do not count."""
    return own.low < 1 + delta and own.high > 1 / (1 + delta)
