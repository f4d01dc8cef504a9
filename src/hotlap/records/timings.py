"""The times that a verification's answer is computed from."""

from __future__ import annotations

from typing import TypeAlias

from hotlap.records.base import Record

TimesOfReplicates: TypeAlias = tuple[tuple[float, ...], ...]
"""Wall seconds per sample: a row for each replicate, in it a figure for each round."""


class Timings(Record, frozen=True, kw_only=True):
    """The rounds of a verification, and the single steps of its last replicate.

    ``baseline``, ``repeat`` (the unmodified script again) and ``plan`` are the rounds that are compared, those of each
    replicate next to each other. ``baseline_steps`` and ``plan_steps`` are the wall seconds of timed steps in their
    order, at most the last 400 of each, and ``baseline_samples`` and ``plan_samples`` the mean samples of such a step.
    """

    baseline: TimesOfReplicates = ()
    repeat: TimesOfReplicates = ()
    plan: TimesOfReplicates = ()
    baseline_steps: tuple[float, ...] = ()
    plan_steps: tuple[float, ...] = ()
    baseline_samples: float = 1.0
    plan_samples: float = 1.0
