"""What training costs, and when a plan has earned back the time spent on it."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate


class Price(Record, frozen=True, kw_only=True):
    """The price of an hour of this machine; ``currency`` is printed after amounts (may be empty)."""

    per_hour: float
    currency: str = ""


class BreakEven(Record, frozen=True, kw_only=True):
    """How long training must continue with the plan until the seconds spent are earned back.

    ``steps`` counts steps of the original script's size; None where nothing is saved, or perhaps nothing.
    """

    spent_seconds: Estimate
    samples: Estimate | None = None
    steps: Estimate | None = None


class WholeRun(Record, frozen=True, kw_only=True):
    """One training run of so many samples, steps only; the time with the plan includes its longer start-up."""

    samples: int
    seconds_before: Estimate
    seconds_after: Estimate | None = None
    price_before: Estimate | None = None
    price_after: Estimate | None = None


class Costs(Record, frozen=True, kw_only=True):
    """What training costs before and after, by arithmetic on what a study measured (:mod:`hotlap.measure.cost`).

    Only training steps count; evaluation, checkpoints and the like come on top of both. The time after is the time
    before divided by the speedup, and so has the speedup's interval; None where no gain is claimed. ``million_`` is the
    price of a million samples and ``tuning_price`` that of the study itself, where a price was given. Where the samples
    of a step were not ``counted`` but guessed, there is no price of a million samples or of a run.
    :func:`hotlap.render.cost.cost_lines` renders this record.
    """

    confidence: float
    samples_per_step: float
    seconds_per_sample_before: Estimate
    seconds_per_sample_after: Estimate | None = None
    price: Price | None = None
    million_before: Estimate | None = None
    million_after: Estimate | None = None
    run: WholeRun | None = None
    startup: BreakEven | None = None
    tuning: BreakEven | None = None
    tuning_price: float | None = None
    counted: bool = True
