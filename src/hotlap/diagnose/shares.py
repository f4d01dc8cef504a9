"""Costs as shares of the step, with an interval where the run allows one. Not a rule itself."""

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
"""The unit of what is spent outside of steps; a run begins with its first step, unless its start-up is meant."""

MATERIAL = 0.02
"""A cause that costs less than this share of the step is not spoken of."""

SURELY = 0.01
"""And its interval must lie above this."""

_BATCHES = 8
_DEVIATIONS = 2.0
_LEAST_STEPS = 2 * _BATCHES


def is_material(share: Estimate) -> bool:
    """Whether a cost is large enough to be spoken of, and surely more than noise. A bound (:func:`at_most`), whose low
    end is zero, never is; a rule that can only bound its cost compares the bound itself with :data:`MATERIAL`."""
    return share.value >= MATERIAL and share.low >= SURELY


def phase_share(profile: Profile, phase: StepPhase) -> Estimate:
    """A phase's share of the untouched script's step, warm-up left out; zero where there is no account of it.

    The interval comes from the rows of ``profile.steps`` where there are any, else the account's mean stands alone.
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
    """What forward and backward take of the untouched step together: nothing that lies in them can cost more. Without
    an account, as of a trace alone, that is no bound."""
    account = profile.account
    seconds = account.seconds_in("forward") + account.seconds_in("backward")
    return min(1.0, seconds / account.wall) if account.wall > 0 else 1.0


def observed_share(profile: Profile, seconds: float) -> float:
    """``seconds``, spent in all of the profiled run's observed steps, as a share of these; zero where none were."""
    observed = profile.evidence.observed_seconds
    return min(1.0, max(0.0, seconds / observed)) if observed > 0 else 0.0


def sampled_share(profile: Profile, seconds: float, samples: int) -> Estimate:
    """What sampled lines take of the observed steps, with an interval for the chance of sampling."""
    value = observed_share(profile, seconds)
    margin = value * _DEVIATIONS / math.sqrt(max(1, samples))
    return between(value, value - margin, value + margin)


def is_unguarded(profile: Profile, steps: int) -> bool:
    """Whether what happened in ``steps`` of the observed steps happened in at least half of them; less often, the line
    stands behind an ``if`` that lets every n-th step pass."""
    return 0 < profile.evidence.observed_steps <= 2 * steps


def share_of_steps(part_seconds: Sequence[float], whole_seconds: Sequence[float]) -> Estimate:
    """The mean of one column over the mean of another, both one row a step, with a 95 % interval.

    The interval comes from the means of eight stretches of consecutive steps (batch means; Law and Kelton,
    *Simulation Modeling and Analysis*), since neighbouring steps resemble each other; with fewer than sixteen steps
    there is none, and the value stands at both ends. Raises :class:`ValueError` for columns of unequal length.
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
    """A share that was measured once, without an interval."""
    return between(value, value, value)


def between(value: float, low: float, high: float, unit: str = UNIT) -> Estimate:
    """A share with its interval, held within 0 and 1."""
    low, value, high = (min(1.0, max(0.0, it)) for it in (low, value, high))
    return Estimate(value=value, low=low, high=high, unit=unit)


def scaled(share: Estimate, factor: float) -> Estimate:
    """A part of a share; ``factor`` is not negative."""
    return between(share.value * factor, share.low * factor, share.high * factor)


def without(share: Estimate, part: float) -> Estimate:
    """What is left of a share."""
    return between(share.value - part, share.low - part, share.high - part, share.unit)


def at_most(high: float, unit: str = UNIT) -> Estimate:
    """A share of which only an upper bound is known: all that could be gained, were it free."""
    return between(high, 0.0, high, unit)
