"""Costs as shares of the step, with an interval if the run allows one. Not a rule itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, stdev

from hotlap.diagnose.profile import Profile
from hotlap.measure import run_account
from hotlap.measure.account import warm_up_steps
from hotlap.measure.student import quantile
from hotlap.records import Estimate, StepPhase

UNIT = "of the step"
RUN = run_account.UNIT
"""The unit of time outside of steps; a run begins with its first step, except for findings about start-up."""

MATERIAL = 0.02
"""A cause that costs less than this share of the step is not reported."""

SURELY = 0.01
"""The interval of a reported cost must be above this."""

_BATCHES = 8
_DEVIATIONS = 2.0
_LEAST_STEPS = 2 * _BATCHES


def is_material(share: Estimate) -> bool:
    """Whether a cost is large enough to report, and clearly more than noise.

    A bound (:func:`at_most`), whose low end is zero, never is; a rule that can only bound its cost compares the bound
    itself with :data:`MATERIAL`.
    """
    return share.value >= MATERIAL and share.low >= SURELY


def phase_share(profile: Profile, phase: StepPhase) -> Estimate:
    """Return a phase's share of the unmodified script's step, without warm-up.

    It is zero without an account. The interval comes from the rows of ``profile.steps``; without rows the account's
    mean has none.
    """
    seconds = profile.account.seconds_in(phase)
    if profile.account.wall <= 0 or seconds <= 0:
        return exactly(0.0)
    skip = warm_up_steps(profile.steps)
    whole = profile.steps.wall_seconds[skip:]
    part = profile.steps.seconds_in(phase)[skip:]
    if not whole or len(part) != len(whole):
        return exactly(seconds / profile.account.wall)
    return share_of_steps(part, whole)


def computing_share(profile: Profile) -> float:
    """Return the share of forward and backward in the unmodified step, the bound of any cost in them.

    Without an account, as for a trace alone, it is no bound.
    """
    account = profile.account
    seconds = account.seconds_in("forward") + account.seconds_in("backward")
    return min(1.0, seconds / account.wall) if account.wall > 0 else 1.0


def observed_share(profile: Profile, seconds: float) -> float:
    """Return the share of ``seconds`` in all observed steps of the profiled run; zero without any."""
    observed = profile.evidence.observed_seconds
    return min(1.0, max(0.0, seconds / observed)) if observed > 0 else 0.0


def sampled_share(profile: Profile, seconds: float, samples: int) -> Estimate:
    """Return the sampled lines' share of the observed steps, with the error of sampling."""
    value = observed_share(profile, seconds)
    margin = value * _DEVIATIONS / math.sqrt(max(1, samples))
    return between(value, value - margin, value + margin)


def is_unguarded(profile: Profile, steps: int) -> bool:
    """Whether an event in ``steps`` of the observed steps happened in at least half of them.

    An event in fewer steps is behind an ``if`` that is true in every n-th step.
    """
    return 0 < profile.evidence.observed_steps <= 2 * steps


def share_of_steps(part_seconds: Sequence[float], whole_seconds: Sequence[float]) -> Estimate:
    """Return the ratio of two columns' means, one row per step, with a 95 % interval.

    The interval comes from the means of eight runs of consecutive steps (batch means; Law and Kelton, *Simulation
    Modeling and Analysis*), since neighbouring steps are correlated; with fewer than sixteen steps both ends equal the
    value. Raises :class:`ValueError` for columns of unequal length.
    """
    if len(part_seconds) != len(whole_seconds):
        raise ValueError(f"Columns of {len(part_seconds)} and {len(whole_seconds)} steps.")
    whole = math.fsum(whole_seconds)
    if whole <= 0:
        return exactly(0.0)
    value = math.fsum(part_seconds) / whole
    steps = len(whole_seconds)
    if steps < _LEAST_STEPS:
        return exactly(value)
    edges = [steps * i // _BATCHES for i in range(_BATCHES + 1)]
    mean = whole / steps
    residuals = [
        fmean(part - value * total for part, total in zip(part_seconds[a:b], whole_seconds[a:b], strict=True)) / mean
        for a, b in pairwise(edges)
    ]
    margin = quantile(0.975, _BATCHES - 1) * stdev(residuals) / math.sqrt(_BATCHES)
    return between(value, value - margin, value + margin)


def exactly(value: float) -> Estimate:
    """Return a share that was measured once, without an interval."""
    return between(value, value, value)


def between(value: float, low: float, high: float, unit: str = UNIT) -> Estimate:
    """Return a share with its interval, clamped to 0 and 1."""
    low, value, high = (min(1.0, max(0.0, it)) for it in (low, value, high))
    return Estimate(value=value, low=low, high=high, unit=unit)


def scaled(share: Estimate, factor: float) -> Estimate:
    """Return a part of a share; ``factor`` is not negative."""
    return between(share.value * factor, share.low * factor, share.high * factor)


def without(share: Estimate, part: float) -> Estimate:
    """Return what remains of a share."""
    return between(share.value - part, share.low - part, share.high - part, share.unit)


def at_most(high: float, unit: str = UNIT) -> Estimate:
    """Return a share with only an upper bound: the gain if the cause cost nothing."""
    return between(high, 0.0, high, unit)
