"""What training costs, and when a plan has earned back what it took."""

from __future__ import annotations

from hotlap.records.base import Record
from hotlap.records.estimate import Estimate


class Price(Record, frozen=True, kw_only=True):
    """What an hour of this machine costs; ``currency`` is the word that stands behind amounts, or nothing."""

    per_hour: float
    currency: str = ""


class BreakEven(Record, frozen=True, kw_only=True):
    """How long training must go on with the plan until seconds that were spent are earned back.

    ``steps`` counts steps of the original script's size; None where nothing is saved, or perhaps nothing.
    """

    spent_seconds: Estimate
    samples: Estimate | None = None
    steps: Estimate | None = None


class WholeRun(Record, frozen=True, kw_only=True):
    """One training run of so many samples, in steps alone; what it takes after has the plan's longer start in it."""

    samples: int
    seconds_before: Estimate
    seconds_after: Estimate | None = None
    price_before: Estimate | None = None
    price_after: Estimate | None = None


class Costs(Record, frozen=True, kw_only=True):
    """What training costs before and after, by arithmetic on what a study measured (:mod:`hotlap.measure.cost`).

    Only training steps count; evaluation, checkpoints and the like come on top of both. What it takes after is what it
    took before divided by the speedup, hence with the speedup's interval; None where no gain is claimed. ``million_``
    is the price of a million samples and ``tuning_price`` that of the study itself, where a price was given. Where the
    samples of a step were not ``counted`` but guessed there is no price of a million of them, and none of a run.
    :func:`hotlap.render.cost.cost_lines` says all this in sentences.
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
