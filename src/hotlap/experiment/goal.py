"""Evaluate an objective while trials run: whether they may stop, whether a gain is in reach, what a replicate showed.

:mod:`hotlap.objective` judges finished comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from hotlap.measure import speed, student
from hotlap.measure.metrics.api import Metric, all_metrics
from hotlap.objective import NOTHING_USED, PEAKS, gain, is_speed, judge, metric_of
from hotlap.records import PEAK_BYTES, SECONDS_PER_SAMPLE, Comparison, Limit, Objective, Replicate


def known_metrics() -> tuple[str, ...]:
    """The metrics that an objective or a limit may name."""
    return (SECONDS_PER_SAMPLE, PEAK_BYTES, *all_metrics())


@dataclass(frozen=True, slots=True)
class LimitUse:
    """What an arm of one replicate used of something limited, relative to the first arm.

    ``low`` is the lower end of its 95 % interval over rounds; ``ratio`` itself if there is only one figure.
    """

    limit: Limit
    ratio: float
    low: float

    def exceeds(self, noise: float, used: Mapping[str, float] = NOTHING_USED) -> bool:
        """Whether it is beyond the limit by more than its uncertainty.

        ``noise`` is that of one replicate, as a share, and ``used`` the first arm's use, as for
        :func:`hotlap.objective.judge`.
        """
        return self.low > self.left(used) * (1 + noise)

    def left(self, used: Mapping[str, float] = NOTHING_USED) -> float:
        """What the first arm leaves of the limit."""
        return self.limit.most / used.get(self.limit.metric, 1.0)


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective during a search; ``speed_delta`` is the smallest gain of speed that is worth having."""

    objective: Objective
    speed_delta: float

    @property
    def is_of_speed(self) -> bool:
        """Whether the metric is time."""
        return self.objective.metric == SECONDS_PER_SAMPLE

    @property
    def delta(self) -> float:
        """The smallest gain worth having, as a share."""
        if self.is_of_speed:
            return self.speed_delta
        return max(it.smallest_change for it in _metrics(self.objective.metric))

    def is_decided(self, comparison: Comparison, replicates: int, used: Mapping[str, float]) -> bool:
        """Whether a trial may stop at this analysis; ``used`` as for :func:`hotlap.objective.judge`."""
        if is_speed(self.objective):
            return speed.decided(comparison.speed, replicates, delta=self.speed_delta)
        if all(analysis.replicates != replicates for analysis in speed.ANALYSES):
            return replicates > speed.ANALYSES[-1].replicates
        if replicates == speed.ANALYSES[-1].replicates:
            return True
        if not comparison.speed.baseline_agrees:
            return False
        found = judge(self.objective, comparison, used)
        if any(it.state == "broken" for it in found.limits) or found.metric_verdict in ("worse", "no-effect"):
            return True
        if found.metric_verdict == "better":
            return all(it.state == "kept" for it in found.limits)
        return self.is_out_of_reach(comparison)

    def is_out_of_reach(self, comparison: Comparison) -> bool:
        """Whether the whole interval is below the gain worth having."""
        best = gain(self.objective, comparison)
        return comparison.speed.baseline_agrees and best is not None and best.high < 1 + self.delta

    def seen(self, turns: Replicate, arm: int) -> float | None:
        """How many times better an arm of one replicate was than the first, without an interval; None if unknown."""
        if self.is_of_speed:
            return math.exp(-fmean(_slowdowns(turns, arm)))
        ratio = _ratio_of(self.objective.metric, turns, arm)
        return 1 / ratio if ratio is not None else None

    def uses(self, turns: Replicate, arm: int, *, has_own_launch: bool) -> tuple[LimitUse, ...]:
        """For each limit whose metric is known, what an arm of one replicate used of it.

        Where all arms share a process (``has_own_launch`` is false), only the time of each is known.
        """
        found: list[LimitUse] = []
        for limit in self.objective.limits:
            if limit.metric == SECONDS_PER_SAMPLE:
                logs = _slowdowns(turns, arm)
                reach = student.quantile(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs)) if logs[1:] else 0.0
                found.append(LimitUse(limit, math.exp(fmean(logs)), math.exp(fmean(logs) - reach)))
            elif has_own_launch:
                ratio = _ratio_of(limit.metric, turns, arm)
                found += [LimitUse(limit, ratio, ratio)] if ratio is not None else []
        return tuple(found)

    def p_value(self, comparison: Comparison) -> float:
        """The p-value of "no effect" on the metric; 1 if it is unknown."""
        found = gain(self.objective, comparison)
        if found is None:
            return 1.0
        return speed.p_value_of(found, replicates=comparison.speed.replicates, confidence=comparison.speed.confidence)

    def used_after(self, used: Mapping[str, float], comparison: Comparison) -> dict[str, float]:
        """A plan's use of what is limited, relative to the unmodified script, after a lever joined it.

        These are upper ends of intervals, so that the remaining allowance is certain.
        """
        found = {it.metric: metric_of(comparison, it.metric) for it in self.objective.limits}
        return {name: used.get(name, 1.0) * (it.ratio.high if it is not None else 1.0) for name, it in found.items()}


def unknown_names(objective: Objective) -> Sequence[str]:
    """Names of metrics that do not exist."""
    named = (objective.metric, *(it.metric for it in objective.limits))
    return [it for it in named if it not in known_metrics()]


def _slowdowns(turns: Replicate, arm: int) -> list[float]:
    """For each round, the logarithm of how many times as long the arm took as the first."""
    return [math.log(other / own) for own, other in zip(turns.rounds[0], turns.rounds[arm], strict=True)]


def _ratio_of(name: str, turns: Replicate, arm: int) -> float | None:
    """A metric of an arm relative to the first; None if it is unknown."""
    for metric in _metrics(name):
        own, other = metric.of_run(turns.runs[0]), metric.of_run(turns.runs[arm])
        if own and other:
            return other / own
    return None


def _metrics(name: str) -> list[Metric]:
    known = all_metrics()
    return [known[it] for it in (PEAKS if name == PEAK_BYTES else (name,))]
