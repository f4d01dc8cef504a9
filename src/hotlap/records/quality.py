"""What the calls of an inference target took, and how far the outputs of a candidate are from the model's own."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate


class LatencyPercentile(Record, frozen=True, kw_only=True):
    """The time that a ``share`` of the calls does not exceed, with an interval by order statistics."""

    share: float
    seconds: Estimate


class Latency(Record, frozen=True, kw_only=True):
    """The calls of one arm, those of all its launches together.

    A percentile is missing where there were too few calls for an interval that ends on both sides. The intervals are
    over calls; how far launches differ, only the ratio of two arms shows.
    """

    calls: int
    worst_seconds: float
    percentiles: tuple[LatencyPercentile, ...] = ()
    confidence: float = 0.95


class OutputQuality(Record, frozen=True, kw_only=True):
    """One tensor that the model returns, of a candidate against the model in float32, over all inputs.

    ``relative_error`` is the norm of the difference as a share of the reference's norm, over all inputs together, and
    ``worst_relative_error`` that of the worst input; ``cosine`` is the smallest of one input. ``agreement`` is the
    share of ``decisions`` that are the same (None where the output holds none): of logits the largest class, of vectors
    of unit length the nearest other one. ``finite`` is false where a value is NaN, or infinite and the reference's is
    not; the figures mean nothing then.
    """

    name: str
    finite: bool = True
    relative_error: float = 0.0
    worst_relative_error: float = 0.0
    cosine: float = 1.0
    agreement: Estimate | None = None
    decisions: int = 0


class QualityComparison(Record, frozen=True, kw_only=True):
    """The outputs of a candidate for so many ``inputs`` of the user's. ``level`` is what cosine and agreement had to
    reach. ``random_share`` is the share of the model's weights that another random seed changes: they were drawn and
    not loaded (None: unknown)."""

    level: float
    inputs: int
    outputs: tuple[OutputQuality, ...] = ()
    random_share: float | None = None
