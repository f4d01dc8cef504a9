"""All combinations of a few levers within one launch: which of them are verified."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Sequence

import msgspec
from fake_levers import named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from test_one_launch import switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Kept, Replicate, Study, TurnRequest

NAMES = ("one", "other", "third")
SEEDS = range(60)

Seconds = Callable[[Collection[str]], float]
"""The seconds of a sample with these levers on."""


class Switching(FakeExecutor):
    """Within a launch, combinations of levers take the seconds of a function, with noise in each round."""

    def __init__(self, script: FakeScript, seconds: Seconds, noise: float, seed: int) -> None:
        super().__init__(script, seed=seed)
        self.within = seconds
        self.noise_within = noise
        self.launched: list[set[str]] = []

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        plans = [frozenset(it.lever for it in arm.plan.settings) for arm in request.arms]
        if not request.one_launch:
            self.launched.append(set(plans[-1]))
            return turns
        noise = random.Random(f"{self.seed} {[sorted(it) for it in plans]}")
        levels = [self.within(it) for it in plans]
        rows = [tuple(it * math.exp(noise.gauss(0.0, self.noise_within)) for _ in turns.rounds[0]) for it in levels]
        return msgspec.structs.replace(turns, rounds=tuple(rows))


def each_gains(share: float, gaining: Collection[str] = NAMES) -> Seconds:
    """Levers that all gain so much, next to each other too."""
    return lambda on: 0.02 / (1 + share) ** len(set(on) & set(gaining))


def the_same_effect(on: Collection[str]) -> float:
    """Two levers of which either gives all that both give."""
    return 0.02 / (1.2 if {"one", "other"} & set(on) else 1.0)


def searched(seconds: Seconds, *, noise: float, names: Collection[str], seed: int) -> tuple[Switching, Study]:
    """One search of these levers, by an executor that remembers what it launched."""
    effects = {setting(it): Effect(compute=seconds({it}) / seconds(())) for it in names}
    executor = Switching(FakeScript(effects=effects), seconds, noise, seed)
    levers = named(*map(switchable, names))
    return executor, tune(WORKLOAD, Options(budget_seconds=600.0), executor, levers=levers, clock=executor.clock)


def verified(seconds: Seconds, *, noise: float, names: Collection[str] = NAMES) -> Sequence[set[str]]:
    """For each seed, the levers of the first plan that has launches of its own."""
    made = (searched(seconds, noise=noise, names=names, seed=seed)[0] for seed in SEEDS)
    return [next(iter(it.launched), set()) for it in made]


def share(found: Sequence[set[str]], levers: Collection[str]) -> float:
    """In how many of these plans all of these levers are."""
    return sum(set(levers) <= it for it in found) / len(found)


def test_small_gains_are_seen_over_all_pairs_of_combinations() -> None:
    """One pair of combinations has too much noise for gains of 5 %; the mean over four pairs has less."""
    assert share(verified(each_gains(0.05), noise=0.05), NAMES) > 0.6
    assert share(verified(each_gains(0.05, NAMES[:2]), noise=0.05), NAMES[:2]) > 0.6


def test_of_many_levers_what_each_gained_alone_counts_too() -> None:
    """Next to the others they are compared once; before that each was compared by itself."""
    many = ("one", "other", "third", "fourth", "idle")
    found = verified(each_gains(0.06, many[:4]), noise=0.05, names=many)
    assert share(found, many[:4]) > 0.5
    assert share(found, many[4:]) < 0.1


def test_no_lever_joins_that_adds_nothing_to_another() -> None:
    found = verified(the_same_effect, noise=0.05)
    assert all({"one", "other"} & it for it in found)
    assert share(found, ("one", "other")) < 0.1


def test_an_idle_lever_stays_out() -> None:
    assert share(verified(each_gains(0.05, NAMES[:2]), noise=0.05), NAMES[2:]) < 0.1


def test_levers_that_only_together_are_shown_to_gain_stay_together() -> None:
    """A gain of 12 % is seen where two of 6 % are not."""
    two = NAMES[:2]
    assert share(verified(each_gains(0.06, two), noise=0.1, names=two), two) > 0.12
    assert share(verified(each_gains(0.0), noise=0.1, names=two), two) < 0.05


def test_a_lever_whose_own_share_was_not_shown_says_so() -> None:
    two = NAMES[:2]
    studies = [searched(each_gains(0.06, two), noise=0.1, names=two, seed=seed)[1] for seed in SEEDS]
    kept = [it.verdict for study in studies for it in study.outcomes if it.together_with]
    shown = [it for it in kept if isinstance(it, Kept) and it.comparison.within_launch]
    assert {it.comparison.speed.verdict == "faster" for it in shown} == {True, False}
    for it in shown:
        is_faster = it.comparison.speed.verdict == "faster"
        assert ("Its own share was measured within one launch" in it.reason) == is_faster
        assert ("its own share was not shown within one launch" in it.reason) != is_faster
