"""The possible first measurements: how many settings at once, for how many rounds and how long."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from hotlap import plan as plans_of
from hotlap.experiment.costs import FEWEST_BLOCK_STEPS, FEWEST_ROUNDS, FEWEST_ROUNDS_OF_A_SHORT_SCRIPT, Shape
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.records import Plan, Setting

_SURPRISE = 2.0
"""A lever may start slowly, which must not cost the other levers of its replicate their screening."""

_SCREENINGS = (
    (FEWEST_ROUNDS, 1.0),
    (FEWEST_ROUNDS, 0.5),
    (FEWEST_ROUNDS // 2, 0.5),
    (FEWEST_ROUNDS_OF_A_SHORT_SCRIPT, 0.25),
)
"""Rounds of a screening, and the length of its blocks as a share of the usual; the usual one first. Shorter blocks come
before fewer rounds, since an interval narrows with its rounds."""


@dataclass(frozen=True, slots=True)
class Screening:
    """A first measurement: the number of settings at once, of rounds, and the shape of its blocks (None: as usual).

    With ``one_launch`` a single process switches all of them, and runs the current plan twice. If one of them
    ``compiles``, its start or its first block may take as long as a start may.
    """

    settings: int
    rounds: int
    shape: Shape | None
    seconds: float
    one_launch: bool = False
    compiles: bool = False

    @property
    def launches(self) -> int:
        """How many launches of the script it makes."""
        return 1 if self.one_launch else self.settings + self.references

    @property
    def references(self) -> int:
        """How many arms run the current plan, before those of the settings."""
        return 2 if self.one_launch else 1


def can_switch(lever: Lever, setting: Setting) -> bool:
    """Whether a process can switch it while it trains; variables must be set before it starts."""
    return lever.switch is not None and not lever.environment(setting)


def affordable_screening(trials: Trials, possible: Iterable[Screening], launches: int = 1) -> Screening | None:
    """The first screening that the time allows so many times or, if it allows none, as often as possible; None if it
    allows none at all."""
    known = list(possible)
    for times in range(launches, 0, -1):
        found = next((it for it in known if trials.fits(times * most_seconds(trials, it))), None)
        if found is not None:
            return found
    return None


def most_seconds(trials: Trials, screening: Screening) -> float:
    """The time limit of a screening, if a lever starts slowly or hangs."""
    launches = 1 if screening.one_launch else screening.settings + 1
    limit = trials.shortest_start_limit_seconds if screening.compiles else trials.shortest_limit_seconds
    hang = launches * trials.costs.startup_seconds + limit
    return max(hang, screening.seconds * (_SURPRISE if screening.settings > 1 else 1.0))


def screenings(
    trials: Trials, incumbent: Plan, waiting: Sequence[Setting], *, fewer_first: bool = False
) -> Iterator[Screening]:
    """The possible screenings with a launch for each setting: at as many as run at the same time, also if they must be
    shorter, since others need another launch of the current plan; else at fewer; the shortest of all last.
    ``fewer_first``: at fewer before they are shorter, where settings may take long to start however short they are."""
    *usual, shortest = _lengths(trials)
    groups = [[it] for it in usual] if fewer_first else [usual]
    for lengths in (*groups, [shortest]):
        for settings in range(min(len(waiting), max(1, trials.arms_at_once - 1)), 0, -1):
            arms = [incumbent, *(plans_of.with_setting(incumbent, it) for it in waiting[:settings])]
            yield from _of_arms(trials, arms, lengths)


def screenings_of_arms(trials: Trials, arms: Sequence[Plan]) -> Iterator[Screening]:
    """The possible screenings with a launch for each of these plans, longest first."""
    return _of_arms(trials, arms, _lengths(trials))


def _of_arms(trials: Trials, arms: Sequence[Plan], lengths: Iterable[tuple[int, Shape | None]]) -> Iterator[Screening]:
    for rounds, shape in lengths:
        seconds = trials.costs.of_replicate(arms, rounds, shape)
        yield Screening(len(arms) - 1, rounds, shape, seconds, compiles=_compiles(trials, arms))


def screenings_in_one_launch(trials: Trials, incumbent: Plan, waiting: Sequence[Setting]) -> Iterator[Screening]:
    """The screenings of settings that one process can switch, longest first; none if the script has too few steps."""
    plans = [incumbent, incumbent, *(plans_of.with_setting(incumbent, it) for it in waiting)]
    return (it for it in screenings_of_plans(trials, plans) if waiting)


def screenings_of_plans(trials: Trials, plans: Sequence[Plan]) -> Iterator[Screening]:
    """The same of whole plans, of which the first two are the current one."""
    most_steps = trials.costs.shape.most_steps or math.inf
    compiles = _compiles(trials, plans)
    for rounds, shape in _lengths(trials):
        if trials.costs.steps_of_one_launch(plans, rounds, shape) <= most_steps:
            seconds = trials.costs.of_one_launch(plans, rounds, shape)
            yield Screening(len(plans) - 2, rounds, shape, seconds, one_launch=True, compiles=compiles)


def _compiles(trials: Trials, plans: Sequence[Plan]) -> bool:
    return any(it.lever in trials.slow_levers for plan in plans for it in plan.settings)


def _lengths(trials: Trials) -> Iterator[tuple[int, Shape | None]]:
    """Rounds and the shape of their blocks; the usual one first."""
    usual = trials.costs.shape
    for rounds, part in _SCREENINGS:
        yield min(rounds, usual.most_rounds), None if part == 1.0 else _shorter(usual, part)


def _shorter(shape: Shape, part: float) -> Shape:
    steps = max(FEWEST_BLOCK_STEPS, math.ceil(shape.block_steps * part))
    turns = max(1, int(shape.block_turns * part))
    return replace(shape, block_steps=steps, block_seconds=shape.block_seconds * part, block_turns=turns)
