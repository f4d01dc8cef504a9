"""What a search improves, and what that may cost."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from hotlap.records.base import Record
from hotlap.records.comparisons import MetricVerdict

SECONDS_PER_SAMPLE: Final = "seconds_per_sample"
PEAK_BYTES: Final = "peak_bytes"
"""The peak of the device's memory where there is a device, else of the host's."""
EVALUATION_SECONDS: Final = "evaluation_seconds"
"""The mean time of the script's evaluations."""
MEDIAN_CALL_SECONDS: Final = "median_call_seconds"
"""The median time of a call of an inference target."""


class Limit(Record, frozen=True, kw_only=True):
    """A metric of the plan may be ``most`` times that of the unmodified script: 1.1 allows a tenth more."""

    metric: str
    most: float


class Objective(Record, frozen=True, kw_only=True):
    """The metric to improve, within limits of others.

    ``p99_seconds`` is what 99 % of the calls of an inference target may take at most; None: any time.
    """

    metric: str = SECONDS_PER_SAMPLE
    limits: tuple[Limit, ...] = ()
    p99_seconds: float | None = None


InferenceGoal: TypeAlias = Literal["throughput", "latency", "memory"]


LimitState: TypeAlias = Literal["kept", "broken", "open"]


class LimitJudgement(Record, frozen=True, kw_only=True):
    """Whether a comparison shows that a limit is kept or broken; ``open`` where its interval allows both, or where the
    metric is not known. ``left`` is what the baseline leaves of the limit, as a multiple of the baseline's value."""

    limit: Limit
    left: float
    state: LimitState


class Judgement(Record, frozen=True, kw_only=True):
    """What a comparison says of an objective.

    ``metric_verdict`` is that of the metric alone; ``verdict`` is ``better`` only where every limit is shown to be kept
    too, ``worse`` where one is broken, and ``inconclusive`` where one is open.
    """

    verdict: MetricVerdict
    metric_verdict: MetricVerdict
    limits: tuple[LimitJudgement, ...] = ()
