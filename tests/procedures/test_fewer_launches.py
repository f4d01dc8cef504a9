"""No launch is made for what an earlier one has answered."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, Redundant, chosen, kept, outcomes, search, switchable

from hotlap.experiment.costs import BLOCK_STEPS, FEWEST_ROUNDS
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import Search, tune
from hotlap.records import (
    Assignment,
    CollectEvidence,
    Ending,
    NoGain,
    Plan,
    ReplayBatch,
    Replicate,
    Run,
    Situation,
    Skipped,
    Stopped,
    SweepLoader,
    TimedOut,
    TurnRequest,
)


def shared(executor: Counting) -> list[TurnRequest]:
    return [it for it in executor.replicates if it.one_launch]


def without_data(situation: Situation) -> float:
    """What a lever gains at most that makes loading faster."""
    account = situation.account
    return account.wall / (account.wall - account.seconds_in("data_wait"))


@pytest.mark.parametrize(("count", "startup"), [(2, 1.0), (3, 1.0), (3, 60.0)])
def test_a_few_levers_are_tried_in_all_combinations_by_their_first_launch(count: int, startup: float) -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.2)}
    names = ("half", "step", "idle")[:count]
    script = FakeScript(effects=effects, optimizer=0.004, startup_seconds=startup, **QUIET)
    study, executor = search(script, *map(switchable, names))
    assert chosen(study) == {"half", "step"}
    (only,) = shared(executor)
    assert len(only.arms) == 1 + 2**count, "all combinations, and none of them twice"
    assert kept(study, "half").comparison.within_launch
    if count == 3:
        verdict = outcomes(study)["idle"].verdict
        assert isinstance(verdict, NoGain) and "Within one launch" in verdict.reason
        assert outcomes(study)["idle"].trial_seconds > 0


def test_of_three_levers_each_is_measured_before_those_that_gain_are_combined_if_time_is_short() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.2)}
    script = FakeScript(effects=effects, optimizer=0.004, startup_seconds=1.0, **QUIET)
    study, executor = search(script, *map(switchable, ("half", "step", "idle")), budget_seconds=240.0)
    assert chosen(study) == {"half", "step"}
    alone, together = ([{one.lever for one in arm.plan.settings} for arm in it.arms] for it in shared(executor))
    assert alone == [set(), set(), {"half"}, {"step"}, {"idle"}]
    assert together == [set(), set(), {"half"}, {"step"}, {"half", "step"}]


def test_of_several_settings_the_best_is_chosen_before_combinations_are_tried() -> None:
    effects = {setting("half", choice="some"): Effect(compute=0.8), setting("half", choice="all"): Effect(compute=0.5)}
    effects |= {setting("step"): Effect(optimizer=0.2)}
    script = FakeScript(effects=effects, optimizer=0.004, **QUIET)
    study, executor = search(script, switchable("half", "some", "all"), switchable("step"))
    assert set(study.plan.settings) == {setting("half", choice="all"), setting("step")}
    assert [len(it.arms) for it in shared(executor)] == [5, 5]


def test_what_is_left_is_not_measured_again_where_dropped_levers_changed_nothing() -> None:
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("step"): Effect(optimizer=0.2),
        setting("feed"): Effect(data=0.3),
        setting("little"): Effect(optimizer=0.92),
    }
    names = ("half", "step", "feed", "little")
    study, executor = search(FakeScript(effects=effects, optimizer=0.004, **QUIET), *map(switchable, names))
    assert chosen(study) == {"half", "step", "feed"}
    assert [len(it.arms) for it in shared(executor)] == [6, 7], "each by itself, and all with those that lack one"
    assert all(kept(study, it).comparison.within_launch for it in ("half", "step", "feed"))


def test_what_is_left_is_measured_again_where_a_dropped_lever_did_the_same() -> None:
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("also"): Effect(compute=0.52),
        setting("step"): Effect(optimizer=0.2),
        setting("feed"): Effect(data=0.3),
    }
    names = ("half", "also", "step", "feed")
    study, executor = search(Redundant(effects=effects, optimizer=0.004, **QUIET), *map(switchable, names))
    assert chosen(study) in ({"half", "step", "feed"}, {"also", "step", "feed"})
    assert len(shared(executor)) == 3


def test_a_lever_that_arithmetic_rules_out_on_top_of_another_has_no_launch_there() -> None:
    effects = {setting("cached"): Effect(data=0.01), setting("loader"): Effect(data=0.5)}
    loader = replace(lever("loader", proof="exact"), bound=without_data)
    study, executor = search(FakeScript(data=0.02, effects=effects, **QUIET), lever("cached", proof="exact"), loader)
    assert chosen(study) == {"cached"}
    assert [len(it.arms) for it in executor.replicates] == [3] + [3] * 5, "a first look at both, the verification"
    verdict = outcomes(study)["loader"].verdict
    assert isinstance(verdict, Skipped) and "at most" in verdict.reason


def test_a_small_gain_on_top_of_a_verified_plan_is_not_worth_many_slow_starts() -> None:
    effects = {setting("half"): Effect(compute=0.4), setting("feed"): Effect(data=0.65)}
    levers = (lever("half"), lever("feed", proof="exact"))
    launches = {}
    for startup in (1.0, 60.0):
        script = FakeScript(effects=effects, data=0.002, startup_seconds=startup, **QUIET)
        study, executor = search(script, *levers)
        launches[startup] = executor.launches
        assert "half" in chosen(study)
    assert launches[60.0] <= 30


@pytest.mark.parametrize(("workers", "data", "sweeps"), [(0, 1e-4, 0), (0, 4e-3, 1), (2, 1e-4, 1)])
def test_a_loader_that_no_step_waits_for_is_not_timed_alone(workers: int, data: float, sweeps: int) -> None:
    script = FakeScript(has_loader=True, loader_workers=workers, data=data, **QUIET)
    study, executor = search(script, switchable("half"))
    assert sum(it.assignment.instrument(SweepLoader) is not None for it in executor.launched) == sweeps
    (ceiling,) = (it for it in study.ceilings if it.name == "loader-alone")
    if not sweeps:
        assert "By the time account" in ceiling.text
        assert ceiling.bound_speedup == pytest.approx(script.step_seconds(Plan()) / data, rel=0.1)


@pytest.mark.parametrize(("budget_seconds", "sweeps"), [(200.0, 0), (None, 1)])
def test_nor_where_that_takes_a_larger_share_of_the_budget_than_waiting_does_of_a_step(
    budget_seconds: float | None, sweeps: int
) -> None:
    script = FakeScript(has_loader=True, data=3e-4, **QUIET)
    waiting = 3e-4 / script.step_seconds(Plan())
    assert 0.01 < waiting < 0.03
    _, executor = search(script, switchable("half"), budget_seconds=budget_seconds)
    assert sum(it.assignment.instrument(SweepLoader) is not None for it in executor.launched) == sweeps


SWEPT = {"has_loader": True, "data": 4e-3, **QUIET}


def sweeps_of(executor: Counting) -> list[tuple[bool, bool]]:
    """Of each launch that times the loader alone: whether it profiles, and whether that comes after steps."""
    asked = [
        (it.assignment.instrument(CollectEvidence), it.assignment.instrument(SweepLoader)) for it in executor.launched
    ]
    return [(evidence is not None, sweep.after_steps) for evidence, sweep in asked if sweep is not None]


def test_the_loader_is_timed_alone_after_the_profiled_steps() -> None:
    study, executor = search(FakeScript(**SWEPT), switchable("half"))
    assert sweeps_of(executor) == [(True, True)], "no launch of its own"
    assert study.loader_rates and {it.name for it in study.ceilings} == {"loader-alone", "model-alone", "matmul"}


def test_the_loader_has_a_launch_of_its_own_where_there_is_no_time_to_profile() -> None:
    slow = {**SWEPT, "data": 0.5, "compute": 2.0}
    study, executor = search(FakeScript(**slow), switchable("half"), budget_seconds=100.0)
    assert any("was not profiled" in it for it in study.warnings)
    assert sweeps_of(executor) == [(False, False)] and study.loader_rates


class FailingAfterSteps(Counting):
    """The loader alone ends whatever launch it is timed in: all, or those that profile."""

    always = False

    def _ending(self, arm: Assignment, steps: int) -> tuple[Ending, int]:
        sweep = arm.instrument(SweepLoader)
        if sweep is not None and (self.always or sweep.after_steps):
            return TimedOut(limit_seconds=60.0, during="loader sweep"), steps
        return super()._ending(arm, steps)

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        run = super()._run(arm, steps, noise)
        return run if isinstance(run.ending, Stopped) else msgspec.structs.replace(run, loader_rates=())


@pytest.mark.parametrize("always", [False, True])
def test_a_loader_that_hangs_costs_neither_the_profile_nor_the_search(always: bool) -> None:
    executor = FailingAfterSteps(FakeScript(effects={setting("half"): Effect(compute=0.5)}, **SWEPT))
    executor.always = always
    study = tune(WORKLOAD, Options(), executor, levers=named(switchable("half")), clock=executor.clock)
    assert sweeps_of(executor) == [(True, True), (False, False)]
    profiled = [it for it in executor.launched if it.assignment.instrument(CollectEvidence)]
    assert profiled[1].assignment.instrument(SweepLoader) is None, "the same without the loader"
    assert bool(study.loader_rates) is not always and chosen(study) == {"half"}
    assert any("could not be timed alone" in it for it in study.warnings) is always


class StartedTogether(Counting):
    """The arms of a replicate start at the same time, as those of a script do that sleeps or reads first."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if not request.one_launch:
            self.seconds -= (len(request.arms) - 1) * self.script.startup_seconds
        return turns

    def take_replicates(self, requests: Sequence[TurnRequest]) -> tuple[Replicate, ...]:
        taken = super().take_replicates(requests)
        self.seconds -= (len(requests) - 1) * self.script.startup_seconds
        return taken


@pytest.mark.parametrize(("startup", "minutes", "launches"), [(0.5, 8, 32), (10.0, 10, 32), (60.0, 16, 27)])
def test_ten_levers_take_minutes_however_slowly_the_script_starts(startup: float, minutes: int, launches: int) -> None:
    effects = {
        setting("precision"): Effect(compute=0.6),
        setting("fused"): Effect(optimizer=0.3),
        setting("layout"): Effect(compute=0.93),
        setting("compile"): Effect(compute=0.85, startup_seconds=8.0),
        setting("threads"): Effect(compute=1.2),
        setting("loader"): Effect(data=0.05),
    }
    switched = ("precision", "fused", "layout", "compile", "threads", "matmul", "attention", "cudnn")
    levers = (*map(switchable, switched), lever("loader", proof="exact"), lever("pages", proof="exact"))
    executor = StartedTogether(FakeScript(effects=effects, optimizer=0.003, startup_seconds=startup, **QUIET))
    study = tune(WORKLOAD, Options(), executor, levers=named(*levers), clock=executor.clock)
    assert chosen(study) == {"precision", "fused", "layout", "compile", "loader"}
    assert study.verification is not None and study.verification.speed.verdict == "faster"
    assert executor.launches <= launches
    assert executor.seconds <= 60 * minutes


def test_what_was_measured_next_to_the_plan_is_not_measured_there_again() -> None:
    """Though its bound would allow a gain that one more launch could show."""
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.2)}
    idle = replace(switchable("idle"), bound=lambda situation: 2.0)
    script = FakeScript(effects=effects, optimizer=0.004, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"), idle)
    assert chosen(study) == {"half", "step"}
    assert len(shared(executor)) == 1
    verdict = outcomes(study)["idle"].verdict
    assert isinstance(verdict, NoGain) and "next to" in verdict.reason


class AfterHalf(FakeScript):
    """A script in which the lever ``late`` gains on top of ``half``, and loses without it."""

    on_top = 0.85

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        if "late" in names(plan):
            seconds["compute"] *= self.on_top if "half" in names(plan) else 1.2
        return seconds


def test_a_lever_that_lost_is_measured_again_only_after_as_much_was_gained(monkeypatch: pytest.MonkeyPatch) -> None:
    """``threads`` loses 22 %: ``half`` gains more than that, ``late`` on top of it does not."""
    monkeypatch.setattr(Search, "tries_at_once", False)
    effects = {setting("half"): Effect(compute=0.5), setting("threads"): Effect(compute=1.4)}
    study, executor = search(AfterHalf(effects=effects, **QUIET), lever("half"), lever("threads"), lever("late"))
    assert chosen(study) == {"half", "late"}
    with_threads = [it for it in executor.replicates if any(names(arm.plan) >= {"threads"} for arm in it.arms)]
    assert [sorted(names(it.arms[0].plan)) for it in with_threads] == [[], ["half"]]
    verdict = outcomes(study)["threads"].verdict
    assert isinstance(verdict, NoGain) and "unlikely" in verdict.reason


class LittleAfterHalf(AfterHalf):
    """It gains 3 % there."""

    on_top = 0.93


@pytest.mark.parametrize(("startup", "plan"), [(1.0, {"half", "late"}), (60.0, {"half"})])
def test_a_small_gain_that_shows_late_is_not_worth_many_slow_starts(
    startup: float, plan: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Search, "tries_at_once", False)
    script = LittleAfterHalf(effects={setting("half"): Effect(compute=0.5)}, startup_seconds=startup, **QUIET)
    study, _ = search(script, lever("half"), lever("late"))
    assert chosen(study) == plan
    if plan == {"half"}:
        verdict = outcomes(study)["late"].verdict
        assert isinstance(verdict, NoGain) and "too little" in verdict.reason


def names(plan: Plan) -> set[str]:
    return {it.lever for it in plan.settings}


@pytest.mark.parametrize(("budget_seconds", "is_shorter"), [(240.0, True), (None, False)])
def test_the_model_alone_has_shorter_blocks_where_they_take_much_of_a_short_budget(
    budget_seconds: float | None, is_shorter: bool
) -> None:
    slow = {**SWEPT, "data": 0.01, "compute": 0.34, "loader_workers": 2}
    study, executor = search(FakeScript(**slow), switchable("half"), budget_seconds=budget_seconds)
    (alone,) = [it for it in executor.replicates if any(arm.instrument(ReplayBatch) for arm in it.arms)]
    assert (alone.block_steps < BLOCK_STEPS) == is_shorter and alone.rounds == FEWEST_ROUNDS
    assert {it.name for it in study.ceilings} >= {"model-alone"}
