"""The plans that the search's plan is compared with: every combination of the settings that apply."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from hotlap.levers.api import Lever
from hotlap.levers.data import loader
from hotlap.records import (
    SECONDS_PER_SAMPLE,
    Failed,
    NotVerified,
    Outcome,
    Plan,
    QualityLost,
    Setting,
    Situation,
    Study,
)

Choices: TypeAlias = Mapping[str, tuple[Setting, ...]]
"""The settings that a plan may use of each lever; leaving the lever out is always a choice too."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The plans to be measured, and in words how they were chosen among how many."""

    plans: tuple[Plan, ...]
    size: int
    statement: str


def situation_of(study: Study) -> Situation:
    """The situation in which the study decided which levers apply.

    Raises :class:`ValueError` for a study without a baseline.
    """
    if study.baseline is None or study.account_before is None:
        raise ValueError(f"The study of {study.workload.target} has no baseline.")
    return Situation(
        facts=study.baseline.facts,
        machine=study.machine,
        account=study.account_before,
        ceilings=study.ceilings,
        device_peak_bytes=study.baseline.device_peak_bytes,
        host_peak_bytes=study.baseline.host_peak_bytes,
    )


def choices_of(study: Study, levers: Mapping[str, Lever]) -> Choices:
    """The settings of every lever of speed that applies. Left out are those that change what is learned, and those that
    the study found to fail or could not show to be the same: a plan with them may be faster and is no answer."""
    situation = situation_of(study)
    refused = _refused(study.outcomes)
    found: dict[str, tuple[Setting, ...]] = {}
    for name, lever in levers.items():
        if name in refused or lever.obstacle(situation) is not None:
            continue
        if SECONDS_PER_SAMPLE not in lever.improves:
            continue
        settings = tuple(
            it
            for it in _settings(lever, situation)
            if it not in refused and lever.proof_for(situation, it) != "behaviour"
        )
        if settings:
            found[name] = settings
    return found


def all_plans(choices: Choices) -> Iterator[Plan]:
    """Every combination, the empty plan first."""
    for combination in product(*((None, *settings) for settings in choices.values())):
        yield Plan(settings=tuple(it for it in combination if it is not None))


def make_grid(choices: Choices, found: Plan, *, limit: int, seed: int) -> Grid:
    """The whole product but for the found plan itself or, where that is more than ``limit``, a part of it:
    all plans that differ from the found one in one lever, all of a single lever, and others drawn at random."""
    size = math.prod(len(settings) + 1 for settings in choices.values())
    if size - 1 <= limit:
        everything = [it for it in all_plans(choices) if not same(it, found)]
        return Grid(tuple(everything), size, f"All {size} plans were measured.")
    near = neighbours(choices, found)
    single = [it for it in (Plan(), *neighbours(choices, Plan())) if not any(same(it, one) for one in (found, *near))]
    chosen = (near + single)[:limit]
    chosen += _drawn(choices, [found, *chosen], limit - len(chosen), random.Random(seed))
    drawn = max(0, len(chosen) - len(near) - len(single))
    statement = (
        f"{len(chosen) + 1} of {size} plans were measured: the found plan, {min(len(near), limit)} that differ from it "
        f"in one lever, {max(0, min(len(single), limit - len(near)))} with one lever or none, and {drawn} drawn at "
        f"random (seed {seed})."
    )
    return Grid(tuple(chosen), size, statement)


def same(one: Plan, other: Plan) -> bool:
    """Whether two plans have the same settings, in whatever order."""
    return set(one.settings) == set(other.settings)


def neighbours(choices: Choices, plan: Plan) -> list[Plan]:
    """All plans that differ from this one in one lever, which they leave out or set otherwise."""
    mine = {it.lever: it for it in plan.settings}
    order = [*(it for it in mine if it not in choices), *choices]
    found = []
    for name, settings in choices.items():
        for setting in (None, *settings):
            if setting != mine.get(name):
                changed = {**mine, name: setting}
                found.append(Plan(settings=tuple(it for it in map(changed.get, order) if it is not None)))
    return found


def _drawn(choices: Choices, known: Sequence[Plan], count: int, source: random.Random) -> list[Plan]:
    """So many other plans: each combination is as likely as any other."""
    seen = {frozenset(it.settings) for it in known}
    found: list[Plan] = []
    while len(found) < count:
        drawn = [source.choice((None, *settings)) for settings in choices.values()]
        plan = Plan(settings=tuple(it for it in drawn if it is not None))
        if frozenset(plan.settings) not in seen:
            seen.add(frozenset(plan.settings))
            found.append(plan)
    return found


def _settings(lever: Lever, situation: Situation) -> Sequence[Setting]:
    """What the lever would try. Of the loader everything that the search's sweep of the loader alone looks at: whether
    the sweep chose well is part of the benchmark."""
    if lever.name != loader.NAME:
        return lever.candidates(situation)
    own = {it.workers for it in situation.facts.loaders}
    return [it for it in loader.sweep_candidates(situation) if dict(it.values)["num_workers"] not in own]


def _refused(outcomes: Sequence[Outcome]) -> set[str | Setting]:
    """Settings (or levers, where no setting is on record) that may not be part of an answer."""
    closed = [it for it in outcomes if isinstance(it.verdict, (QualityLost, NotVerified, Failed))]
    return {it.setting if it.setting is not None else it.lever for it in closed}
