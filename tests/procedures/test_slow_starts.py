"""A script that starts slowly: its starts are shared, and not spent on what promises little."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript, Interrupt
from hypothesis import given
from hypothesis import strategies as some
from test_together import QUIET, Counting, chosen, outcomes, switchable

from hotlap.experiment.comparing import comparison_within_launch
from hotlap.experiment.confirm import Confirmation, confirm
from hotlap.experiment.costs import Costs, Shape
from hotlap.experiment.draft import StudyDraft, say_nothing
from hotlap.experiment.journaled import JournaledExecutor
from hotlap.experiment.options import Options
from hotlap.experiment.stages import begin, blank_study
from hotlap.experiment.starts import Starts
from hotlap.experiment.trials import Trials
from hotlap.levers.api import Lever
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import NoGain, Plan, Replicate, Run, Study, TurnRequest
from hotlap.study import create_study, open_study

CORES = 2


class Starting(Counting):
    """Launches that start together wait for something at the same time, or ``compute`` on two cores. ``groups`` are how
    many replicates started together."""

    def __init__(self, script: FakeScript, *, computes: bool = False) -> None:
        super().__init__(script)
        self.computes = computes
        self.groups: list[int] = []
        self._together = 1

    def start_seconds(self, launches: int) -> float:
        crowd = max(1.0, launches / CORES) if self.computes else 1.0
        return self.script.startup_seconds * crowd

    def take_turns(self, request: TurnRequest) -> Replicate:
        if self._together == 1 and not request.one_launch:
            self.groups.append(1)
        turns = super().take_turns(request)
        if request.one_launch or not turns.rounds[0]:
            return turns
        launches, arms = self._together * len(request.arms), len(request.arms)
        seconds = self.start_seconds(launches) if not self._started else 0.0
        self._started = self._together > 1
        self._pass_time(seconds - arms * self.script.startup_seconds)
        runs = tuple(msgspec.structs.replace(it, startup_seconds=self.start_seconds(launches)) for it in turns.runs)
        wall_seconds = turns.wall_seconds + self.start_seconds(launches) - arms * self.script.startup_seconds
        return msgspec.structs.replace(turns, runs=runs, wall_seconds=wall_seconds)

    _started = False

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        self.groups.append(len(requests))
        self._together = len(requests)
        taken = super().take_replicates(requests)
        self._together, self._started = 1, False
        return taken


def search(executor: Starting, *levers: Lever, budget: float | None = None) -> Study:
    options = Options(budget_seconds=budget)
    return tune(WORKLOAD, options, executor, levers=named(*levers), clock=executor.clock)


def script(startup: float, **effects: Effect) -> FakeScript:
    return FakeScript(
        startup_seconds=startup, effects={setting(name): it for name, it in effects.items()}, cores=CORES, **QUIET
    )


@pytest.mark.parametrize(
    ("startup", "computes", "groups"),
    [(60.0, False, [3, 2]), (60.0, True, [1] * 5), (1.0, False, [1] * 5)],
    ids=["waits", "computes", "starts at once"],
)
def test_replicates_start_together_where_that_saves_time(startup: float, computes: bool, groups: list[int]) -> None:
    executor = Starting(script(startup, feed=Effect(data=0.05)), computes=computes)
    study = search(executor, lever("feed", proof="exact"), lever("idle", proof="exact"))
    assert chosen(study) == {"feed"}
    assert study.verification is not None and study.verification.speed.replicates == 5
    assert executor.groups[-len(groups) :] == groups


def test_a_start_may_be_computation_until_launches_were_seen_to_start_together() -> None:
    executor = Starting(script(60.0, half=Effect(compute=0.5)))
    search(executor, switchable("half"))
    assert executor.groups[0] == 1 and max(executor.groups) > 1


@pytest.mark.parametrize("computes", [False, True])
def test_a_budget_is_kept_where_replicates_start_together(computes: bool) -> None:
    for budget in (600.0, 900.0, 1200.0):
        executor = Starting(script(30.0, feed=Effect(data=0.05), half=Effect(compute=0.6)), computes=computes)
        search(executor, lever("feed", proof="exact"), switchable("half"), budget=budget)
        assert executor.seconds <= 1.05 * budget


def test_other_settings_are_measured_only_if_the_first_one_gains() -> None:
    settings = {setting("loader", choice=it): Effect(data=1.0) for it in "abc"}
    for gains, fails in ((False, ""), (True, ""), (False, "crash")):
        first = Effect(data=0.3 if gains else 1.0, fails=fails)
        effects = settings | {setting("loader", choice="a"): first, setting("feed"): Effect(compute=0.9)}
        executor = Starting(FakeScript(startup_seconds=60.0, effects=effects, cores=CORES, **QUIET))
        search(executor, lever("loader", "a", "b", "c", proof="exact"), lever("feed", proof="exact"))
        seen = {it for request in executor.replicates for arm in request.arms for it in arm.plan.settings}
        others = {setting("loader", choice=it) for it in "bc"}
        assert others <= seen if gains or fails else not others & seen


@pytest.mark.parametrize("startup", [1.0, 60.0])
def test_levers_that_gained_nothing_are_not_combined_with_one_that_is_shown(startup: float) -> None:
    executor = Starting(script(startup, half=Effect(compute=0.4)))
    study = search(executor, *map(switchable, ("half", "idle", "also", "none")))
    assert chosen(study) == {"half"}
    assert sum(it.one_launch for it in executor.replicates) == 1
    assert all(isinstance(outcomes(study)[it].verdict, NoGain) for it in ("idle", "also", "none"))


def test_levers_that_promise_little_are_combined_with_it_less_often_where_a_start_is_long() -> None:
    effects = {"half": Effect(compute=0.4)} | dict.fromkeys(("a", "b", "c"), Effect(compute=0.98))
    launches = {1.0: 0, 60.0: 0}
    for number in range(4):
        for startup in launches:
            executor = Starting(replace(script(startup, **effects), round_noise=0.01, data=0.004 + 1e-4 * number))
            assert chosen(search(executor, *map(switchable, effects))) >= {"half"}
            launches[startup] += sum(it.one_launch for it in executor.replicates)
    assert launches[60.0] + 2 <= launches[1.0], launches


class Killed(BaseException):
    """In place of kill -9."""


def test_what_started_together_is_measured_again_only_if_it_was_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    slow = script(60.0, feed=Effect(data=0.05))
    levers = named(lever("feed", proof="exact"), lever("idle", proof="exact"))

    def run(folder: Path, interrupt: Interrupt | None = None, *, again: bool = False) -> tuple[Study, Starting]:
        executor = Starting(slow)
        executor._interrupt = interrupt
        opened = open_study(folder) if again else create_study(folder, WORKLOAD, Options())
        with opened as journal:
            return tune(WORKLOAD, Options(), executor, journal=journal, levers=levers, clock=executor.clock), executor

    expected, whole = run(tmp_path / "whole")
    assert whole.groups[-2:] == [3, 2]
    for call in range(2, len(whole.requests) + 1):
        with pytest.raises(Killed):
            run(tmp_path / str(call), Interrupt(call, Killed))
        study, resumed = run(tmp_path / str(call), again=True)
        assert study.plan == expected.plan and study.verification is not None
        assert len(resumed.requests) <= len(whole.requests) - call + 1 + 3, "at most a group is repeated"


@given(
    seconds=some.floats(0.1, 1000),
    cores=some.integers(1, 64),
    replicates=some.integers(1, 5),
    arms=some.integers(2, 9),
    waiting=some.floats(0, 1),
)
def test_the_saved_time_is_that_of_the_part_that_waits(
    seconds: float, cores: int, replicates: int, arms: int, waiting: float
) -> None:
    def takes(launches: int) -> float:
        """A part waits, and the rest computes on as many cores as there are."""
        return seconds * (waiting + (1 - waiting) * max(1.0, launches / cores))

    starts = Starts(seconds, cores)
    before = starts.saved(replicates, arms)
    assert 0.0 <= before <= (replicates - 1) * seconds + 1e-9
    starts.learn(cores + 5, takes(cores + 5))
    truth = replicates * takes(arms) - takes(replicates * arms)
    assert starts.saved(replicates, arms) == pytest.approx(max(0.0, truth), abs=1e-6 * seconds)


@pytest.mark.parametrize("beside", [True, False])
def test_a_first_start_that_took_longer_does_not_count_for_ever(beside: bool) -> None:
    """It compiled what later launches load. The first replicate compiles it once more."""
    costs = Costs(60.0, Shape(step_seconds=0.1), cores=CORES)
    plans = (Plan(),) * 3
    for start in (62.0, 8.0):
        turns = Replicate(runs=(Run(startup_seconds=start),) * 3, rounds=((0.1,) * 8,) * 3, interleaved=beside)
        costs.learn_replicate(turns, plans, start + 20.0)
    assert costs.startup_seconds == 8.0
    assert costs.of_launch(Plan(), 1) < 10.0


def test_replicates_that_start_together_cost_less_but_never_less_than_one() -> None:
    costs = Costs(60.0, Shape(step_seconds=0.1), cores=CORES)
    plans = (Plan(),) * 3
    alone = costs.of_replicates(plans, 5, 8)
    assert costs.of_replicates(plans, 5, 8, at_once=3) == alone == 5 * costs.of_replicate(plans, 8)
    run = Run(startup_seconds=62.0)
    turns = Replicate(runs=(run,) * 3, rounds=((0.1,) * 8,) * 3)
    costs.learn_replicate(turns, plans, 90.0)
    together = costs.of_replicates(plans, 5, 8, at_once=3)
    one = costs.of_replicate(plans, 8)
    assert 2 * one <= together < 5 * one
    assert together == pytest.approx(5 * one - 3 * 56.0, rel=0.05), "three starts less, but for the little they crowd"


def test_what_one_of_two_equal_arms_has_by_chance_is_no_gain() -> None:
    rounds = ((1.06, 1.05, 1.07), (1.0, 1.01, 0.99), (1.0, 1.01, 0.99), (0.5, 0.51, 0.52))
    turns = Replicate(runs=(Run(),) * 4, rounds=rounds)
    half = Plan(settings=(setting("half"),))

    def gain(reference: int, candidate: int) -> float:
        found = comparison_within_launch(Plan(), half, turns, delta=0.01, arms=([reference], [candidate]))
        return found.speed.speedup.value

    assert gain(0, 2) == pytest.approx(1.06**0.5, abs=0.002), "half of it: the mean of both counts"
    assert gain(2, 3) == pytest.approx(1.96, abs=0.01), "any other arm is alone"


def fresh_replicates_of(executor: Starting) -> list[frozenset[str]]:
    """The levers of the third arm of each replicate with two equal arms before it."""
    return [frozenset(it.lever for it in one.arms[2].plan.settings) for one in executor.fresh()]


def test_what_one_launch_could_not_show_is_verified_at_once_in_order_of_what_it_promised() -> None:
    """No launch is clear where blocks differ this much: the levers are tried one by one."""
    effects = {setting("half"): Effect(compute=0.85), setting("little"): Effect(compute=0.99)}
    noisy = FakeScript(startup_seconds=60.0, effects=effects, cores=CORES, round_noise=0.2, launch_noise=0.004)
    executor = Starting(noisy)
    study = search(executor, switchable("little"), switchable("idle"), switchable("half"))
    assert fresh_replicates_of(executor)[:5] == [{"half"}] * 5, "no trial, whose verification would follow anyway"
    assert "half" in chosen(study) and study.verification is not None


def replicates_of_a_trial(startup: float, seed: int) -> int:
    """How many replicates a trial takes of a lever that does nothing."""
    executor = FakeExecutor(FakeScript(startup_seconds=startup, launch_noise=0.05), seed=seed)
    trials = Trials(WORKLOAD, Options(rounds=8), JournaledExecutor(executor, clock=executor.clock))
    draft = StudyDraft(blank_study(WORKLOAD, Options(), None), trials, None, say_nothing)
    begin(trials, draft)
    found = confirm(trials, draft, Plan(), Plan(settings=(setting("idle"),)), lever="idle")
    assert isinstance(found, Confirmation)
    return len(found.replicates)


def test_a_trial_that_shows_nothing_ends_sooner_where_launches_take_minutes() -> None:
    fast, slow = ([replicates_of_a_trial(startup, seed) for seed in range(60)] for startup in (1.0, 60.0))
    assert sum(slow) < 0.95 * sum(fast)
