"""Levers that look likely are tried at once: chosen within launches, proved as one plan, verified on fresh launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from plain_report import plain

from hotlap.experiment.options import Options
from hotlap.gain import own_comparison
from hotlap.levers.api import Lever
from hotlap.levers.support.switching import Switch
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    AlignRandomness,
    CaptureGradients,
    Kept,
    LaunchRequest,
    NoGain,
    NudgeWeights,
    Outcome,
    Plan,
    Progress,
    QualityLost,
    Replicate,
    Run,
    Seen,
    Setting,
    Study,
    TurnRequest,
)
from hotlap.render.lever_table import own_gain


class Counting(FakeExecutor):
    """Record the requested replicates, and count launches."""

    def __init__(self, script: FakeScript, seed: int = 0) -> None:
        super().__init__(script, seed=seed)
        self.replicates: list[TurnRequest] = []
        self.launched: list[LaunchRequest] = []
        self.launches = 0

    def launch(self, request: LaunchRequest) -> Run:
        self.launches += 1
        self.launched.append(request)
        return super().launch(request)

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.replicates.append(request)
        self.launches += 1 if request.one_launch else len(request.arms)
        return super().take_turns(request)

    def fresh(self) -> list[TurnRequest]:
        """The replicates of a claim: the unmodified script twice, and a plan."""
        return [it for it in self.replicates if not it.one_launch and len(it.arms) >= 3 and it.arms[0] == it.arms[1]]


def switchable(name: str, *choices: str) -> Lever:
    def switch(hooks: object, setting: Setting) -> Switch:
        raise AssertionError("a fake executor switches nothing")

    return replace(lever(name, *choices), switch=switch)


def search(script: FakeScript, *levers: Lever, seed: int = 0, **options: object) -> tuple[Study, Counting]:
    executor = Counting(script, seed)
    study = tune(WORKLOAD, Options(**options), executor, levers=named(*levers), clock=executor.clock)  # type: ignore[arg-type]
    return study, executor


def outcomes(study: Study) -> Mapping[str, Outcome]:
    return {it.lever: it for it in study.outcomes}


def chosen(study: Study) -> set[str]:
    return {it.lever for it in study.plan.settings}


def kept(study: Study, name: str) -> Kept:
    verdict = outcomes(study)[name].verdict
    assert isinstance(verdict, Kept), verdict
    return verdict


QUIET: Mapping[str, float] = {"launch_noise": 0.004, "round_noise": 0.01}


def test_promising_levers_are_proved_once_and_verified_once() -> None:
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("step"): Effect(optimizer=0.2),
        setting("feed"): Effect(data=0.05),
    }
    levers = (switchable("half"), switchable("step"), lever("feed", proof="exact"))
    study, executor = search(FakeScript(effects=effects, **QUIET), *levers)
    assert chosen(study) == {"half", "step", "feed"}
    assert study.status == "finished" and study.verification is not None
    assert all(it.arms[2].plan == study.plan for it in executor.fresh()), "no lever had a trial of its own"
    assert study.verification.speed.replicates == len(executor.fresh()) == 5
    truth = executor.script.speedup(study.plan)
    assert study.verification.speed.speedup.low < truth * 1.01 and study.verification.speed.speedup.high > truth * 0.99


def test_each_row_says_where_its_number_comes_from() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.1)}
    effects |= {setting("feed"): Effect(data=0.05)}
    levers = (switchable("half"), switchable("step"), lever("feed", proof="exact"))
    script = FakeScript(effects=effects, optimizer=0.004, **QUIET)
    study, _ = search(script, *levers)
    for name in ("half", "step"):
        found = kept(study, name)
        assert found.comparison.within_launch and "within one launch" in found.reason
        assert outcomes(study)[name].together_with == tuple(it.lever for it in study.plan.settings if it.lever != name)
    feed = kept(study, "feed")
    assert not feed.comparison.within_launch and "fresh launches with and without it" in feed.reason
    without = Plan(settings=tuple(it for it in study.plan.settings if it.lever != "feed"))
    assert feed.comparison.baseline == without and feed.comparison.candidate == study.plan
    truth = script.step_seconds(without) / script.step_seconds(study.plan)
    assert feed.comparison.speed.speedup.value == pytest.approx(truth, rel=0.02)
    assert all(kept(study, it).comparison.quality is not None for it in chosen(study))


def test_one_likely_lever_needs_no_trial_before_its_verification() -> None:
    script = FakeScript(effects={setting("feed"): Effect(data=0.05)}, **QUIET)
    study, executor = search(script, lever("feed", proof="exact"))
    found = kept(study, "feed")
    assert found.comparison == study.verification
    assert len(executor.fresh()) == 5
    assert executor.launches == 2 + 2 + 15, "the script, its profile, a first look, the verification"


class Redundant(FakeScript):
    """Each of two levers halves the computation, and both together no more than one."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        if {"half", "also"} <= {it.lever for it in plan.settings}:
            seconds["compute"] *= 2
        return seconds


class Needed(FakeScript):
    """One lever pays only next to another: memory that is laid out otherwise, for the kernels of a format."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        names = {it.lever for it in plan.settings}
        if "layout" in names:
            seconds["compute"] *= 0.7 if "half" in names else 1.005
        return seconds


def test_of_two_levers_that_give_the_same_one_is_chosen() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("also"): Effect(compute=0.51)}
    study, _ = search(Redundant(effects=effects, **QUIET), switchable("half"), switchable("also"))
    assert chosen(study) == {"half"}
    idle = outcomes(study)["also"].verdict
    assert isinstance(idle, NoGain) and idle.comparison is not None and idle.comparison.within_launch
    assert "next to half" in idle.reason


def test_a_lever_that_pays_only_next_to_another_is_chosen() -> None:
    script = Needed(effects={setting("half"): Effect(compute=0.5)}, **QUIET)
    study, _ = search(script, switchable("half"), switchable("layout"))
    assert chosen(study) == {"half", "layout"}


@pytest.mark.parametrize("seed", range(3))
def test_of_many_levers_those_without_effect_are_dropped(seed: int) -> None:
    """More levers than are tried in all their combinations."""
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("also"): Effect(compute=0.52),
        setting("step"): Effect(optimizer=0.2),
        setting("feed"): Effect(data=0.3),
    }
    names = ("half", "also", "step", "feed", "layout")
    script = Redundant(effects=effects, optimizer=0.004, **QUIET)
    study, executor = search(script, *(switchable(it) for it in names), seed=seed)
    assert chosen(study) in ({"half", "step", "feed"}, {"also", "step", "feed"})
    combining = [it for it in executor.replicates if it.one_launch][1:]
    assert 1 <= len(combining) <= 4
    assert max(len(it.arms) for it in combining) <= 9, "never all combinations of five levers"


def test_what_a_slow_loader_hides_is_found_on_top_of_a_faster_one() -> None:
    def bound(situation: object) -> float:
        account = situation.account  # type: ignore[attr-defined]
        return float(account.wall / (account.wall - account.seconds_in("forward") - account.seconds_in("backward")))

    effects = {setting("feed"): Effect(data=0.001), setting("half"): Effect(compute=0.5)}
    script = FakeScript(data=0.2, compute=0.0015, optimizer=0.0002, effects=effects, **QUIET)
    hidden = replace(switchable("half"), bound=bound)
    study, executor = search(script, lever("feed", proof="exact"), hidden)
    assert chosen(study) == {"feed", "half"}
    shared = [it for it in executor.replicates if it.one_launch]
    assert all([it.lever for it in one.arms[0].plan.settings] == ["feed"] for one in shared)
    assert len(executor.fresh()) == 5


def test_the_lever_that_changes_the_results_is_found_by_halving() -> None:
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("liar"): Effect(optimizer=0.2, loss=1.01),
        setting("feed"): Effect(data=0.05),
    }
    script = FakeScript(effects=effects, optimizer=0.005, **QUIET)
    study, executor = search(script, switchable("half"), switchable("liar"), lever("feed"))
    assert chosen(study) == {"half", "feed"}
    verdict = outcomes(study)["liar"].verdict
    assert isinstance(verdict, QualityLost) and "no longer" in verdict.reason
    assert len(executor.fresh()) == 5, "what is timed was proved before"


def test_the_next_best_setting_takes_the_place_of_one_that_changes_the_results() -> None:
    effects = {
        setting("half", choice="reckless"): Effect(compute=0.3, loss=1.05),
        setting("half", choice="careful"): Effect(compute=0.6),
        setting("feed"): Effect(data=0.05),
    }
    script = FakeScript(effects=effects, **QUIET)
    study, _ = search(script, switchable("half", "reckless", "careful"), lever("feed", proof="exact"))
    assert set(study.plan.settings) == {setting("half", choice="careful"), setting("feed")}


def test_of_two_levers_with_processes_of_their_own_the_second_is_seen_on_top_of_the_first() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("also"): Effect(compute=0.55)}
    study, executor = search(Redundant(effects=effects, **QUIET), lever("half"), lever("also"))
    assert chosen(study) == {"half"}
    assert isinstance(outcomes(study)["also"].verdict, NoGain)
    assert len(executor.fresh()) == 5


class Misleading(Counting):
    """Screenings show a lever to be fast, and no other launch does."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if request.arms[0] == request.arms[1]:
            return turns
        rows = [
            tuple(0.7 * it for it in row) if "idle" in {one.lever for one in run.plan.settings} else row
            for run, row in zip(turns.runs, turns.rounds, strict=True)
        ]
        return msgspec.structs.replace(turns, rounds=tuple(rows))


def test_a_lever_that_adds_nothing_to_the_others_is_left_out_and_the_rest_verified_again() -> None:
    executor = Misleading(FakeScript(effects={setting("half"): Effect(compute=0.3)}, **QUIET))
    levers = named(lever("half"), lever("idle"))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"half"}
    verdict = outcomes(study)["idle"].verdict
    assert isinstance(verdict, NoGain) and "adds to the other levers" in verdict.reason
    assert study.verification is not None and study.verification.candidate == study.plan
    assert len(executor.fresh()) == 10
    assert executor.fresh()[-1].arms[2].plan == study.plan


def test_a_small_gain_is_screened_twice() -> None:
    script = FakeScript(effects={setting("small"): Effect(compute=0.87)}, **QUIET)
    study, executor = search(script, lever("small"))
    assert chosen(study) == {"small"}
    assert len([it for it in executor.replicates if len(it.arms) == 2]) == 2


def test_nothing_is_claimed_where_nothing_helps() -> None:
    levers = (switchable("one"), switchable("two"), lever("three"), lever("four", proof="exact"))
    plans = [search(FakeScript(launch_noise=0.02), *levers, seed=seed)[0].plan.settings for seed in range(40)]
    assert sum(bool(it) for it in plans) <= 2


def test_a_plan_that_crashes_on_fresh_launches_is_tried_lever_by_lever() -> None:
    class Clashing(Counting):
        """Two levers that crash together in a launch of their own, and nowhere else."""

        def _ending(self, arm, steps):  # type: ignore[no-untyped-def]
            names = {it.lever for it in arm.plan.settings}
            if {"half", "feed"} <= names and not arm.instruments and self.clashes:
                from hotlap.records import Crashed

                return Crashed(exit_code=1, error="RuntimeError: planted"), 0
            return super()._ending(arm, steps)

        clashes = True

    effects = {setting("half"): Effect(compute=0.5), setting("feed"): Effect(data=0.05)}
    executor = Clashing(FakeScript(effects=effects, **QUIET))
    levers = named(lever("half"), lever("feed", proof="exact"))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"half"}
    assert study.verification is not None and study.verification.speed.verdict == "faster"


def test_what_it_will_cost_is_said_before_it_begins() -> None:
    effects = {
        setting("half"): Effect(compute=0.5),
        setting("step"): Effect(optimizer=0.2),
        setting("feed"): Effect(data=0.05),
    }
    levers = (switchable("half"), switchable("step"), lever("feed", proof="exact"))
    executor = Counting(FakeScript(effects=effects, startup_seconds=20.0, **QUIET))
    told: list[Progress] = []
    tune(WORKLOAD, Options(), executor, told.append, levers=named(*levers), clock=executor.clock)
    first = next(it for it in told if it.launches_planned)
    assert first.launches == 1
    for said in (first, told[-1]):
        assert said.launches_planned == pytest.approx(executor.launches, rel=0.4 if said is first else 0.25)
        assert said.seconds_planned == pytest.approx(executor.seconds, rel=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_ten_levers_take_few_launches(seed: int) -> None:
    """Tried one by one they took 140 to 190, by the same arithmetic: half of them are the verification."""
    effects = {
        setting("precision"): Effect(compute=0.6),
        setting("fused"): Effect(optimizer=0.3),
        setting("layout"): Effect(compute=0.93),
        setting("compile"): Effect(compute=0.85),
        setting("threads"): Effect(compute=1.2),
        setting("loader"): Effect(data=0.05),
    }
    switched = ("precision", "fused", "layout", "compile", "threads", "matmul", "attention", "cudnn")
    levers = (*map(switchable, switched), lever("loader", proof="exact"), lever("pages", proof="exact"))
    study, executor = search(FakeScript(effects=effects, optimizer=0.003), *levers, seed=seed)
    assert chosen(study) == {"precision", "fused", "layout", "compile", "loader"}
    assert study.verification is not None and study.verification.speed.verdict == "faster"
    assert executor.launches <= 34


def proof_runs(executor: Counting) -> list[LaunchRequest]:
    return [it for it in executor.launched if it.assignment.instrument(CaptureGradients) is not None]


def test_runs_that_only_widen_the_limit_of_a_proof_are_made_only_where_results_differ() -> None:
    effects = {setting("half"): Effect(compute=0.5)}
    _, close = search(FakeScript(effects=effects, **QUIET), switchable("half"))
    assert len(proof_runs(close)) == 3, "the baseline, the plan, and the first step in float64"
    effects = {setting("half"): Effect(compute=0.5, loss=1.002)}
    study, far = search(FakeScript(effects=effects, **QUIET), switchable("half"))
    assert len(proof_runs(far)) == 7, "its repeat, and with nudged weights, three times"
    assert not chosen(study)


def test_one_nudge_that_moves_little_by_chance_condemns_no_lever() -> None:
    """Of the nudges of a script that amplifies rounding some move its losses little, and others far."""
    effects = {setting("half"): Effect(compute=0.5, loss=1.002)}
    unlucky = FakeScript(effects=effects, nudge=1e-5, nudges={"outward": 0.001}, **QUIET)
    study, executor = search(unlucky, switchable("half"))
    assert chosen(study) == {"half"} and len(proof_runs(executor)) == 7
    lucky = FakeScript(effects=effects, nudge=0.001, **QUIET)
    study, executor = search(lucky, switchable("half"))
    assert chosen(study) == {"half"} and len(proof_runs(executor)) == 5, "the first one suffices"


def test_what_no_nudge_explains_is_lost_and_nudges_are_launched_once() -> None:
    effects = {setting(it): Effect(compute=0.5, loss=1.01) for it in ("half", "step")}
    script = FakeScript(effects=effects, nudges={"below": 0.002, "outward": 0.003}, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"))
    assert not chosen(study)
    nudged = [it.assignment.instrument(NudgeWeights) for it in proof_runs(executor)]
    assert sorted(it.towards for it in nudged if it is not None) == ["above", "below", "outward"]


def test_further_nudges_stay_within_the_budget() -> None:
    effects = {setting("half"): Effect(compute=0.5, loss=1.002)}
    for budget_seconds in range(150, 330, 20):
        script = FakeScript(effects=effects, nudges={"outward": 0.001}, startup_seconds=4.0, **QUIET)
        _, executor = search(script, switchable("half"), budget_seconds=float(budget_seconds))
        assert executor.seconds <= budget_seconds


def test_a_script_that_does_not_repeat_itself_is_run_again_for_its_proof() -> None:
    effects = {setting("half"): Effect(compute=0.5)}
    _, executor = search(FakeScript(effects=effects, repeatable=False, **QUIET), switchable("half"))
    assert len(proof_runs(executor)) == 5


def test_only_the_first_replicate_of_a_claim_compiles_everything() -> None:
    effects = {setting("half"): Effect(compute=0.5)}
    _, executor = search(FakeScript(effects=effects, **QUIET), switchable("half"))
    assert [it.compiles_all for it in executor.fresh()] == [True, False, False, False, False]
    assert not any(it.compiles_all for it in executor.replicates if it.one_launch)


def test_a_clear_gain_needs_no_arm_without_the_lever_where_starting_takes_long() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("feed"): Effect(data=0.05)}
    levers = (switchable("half"), lever("feed", proof="exact"))
    study, slow = search(FakeScript(effects=effects, startup_seconds=60.0, **QUIET), *levers)
    assert chosen(study) == {"half", "feed"}
    assert {len(it.arms) for it in slow.fresh()} == {3}
    assert "a first measurement only" in kept(study, "feed").reason
    first = kept(study, "feed").first_ratio
    assert first is not None and own_gain(outcomes(study)["feed"]) == f"{first:.2f}x seen once, not proved"
    assert own_comparison(outcomes(study)["feed"]) is None, "the whole plan's gain is not the lever's"
    assert study.verification is not None
    whole = f"{study.verification.speed.speedup.value:.2f}x"
    rows = [it for it in plain(study).splitlines() if "feed" in it and "kept" in it]
    assert rows and not any(whole in it for it in rows)
    _, quick = search(FakeScript(effects=effects, **QUIET), *levers)
    assert {len(it.arms) for it in quick.fresh()} == {4}


@pytest.mark.parametrize(
    ("startup", "budget_seconds", "arms"), [(2.0, None, 4), (60.0, None, 3), (60.0, 7200.0, 4), (60.0, 1500.0, 3)]
)
def test_a_gain_that_is_not_clear_has_an_arm_where_starts_are_short_or_a_budget_has_room(
    startup: float, budget_seconds: float | None, arms: int
) -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("feed"): Effect(data=0.6)}
    levers = (switchable("half"), lever("feed", proof="exact"))
    script = FakeScript(effects=effects, startup_seconds=startup, **QUIET)
    study, executor = search(script, *levers, budget_seconds=budget_seconds)
    assert chosen(study) == {"half", "feed"}
    assert {len(it.arms) for it in executor.fresh()} == {arms}


def test_the_arm_of_a_clear_gain_takes_no_time_that_other_levers_need() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("feed"): Effect(data=0.05)}
    levers = (switchable("half"), lever("feed", proof="exact"))
    study, short = search(FakeScript(effects=effects, **QUIET), *levers, budget_seconds=190.0)
    assert chosen(study) == {"half", "feed"}
    assert {len(it.arms) for it in short.fresh()} == {3}
    assert "a first measurement only" in kept(study, "feed").reason
    _, long = search(FakeScript(effects=effects, **QUIET), *levers, budget_seconds=380.0)
    assert {len(it.arms) for it in long.fresh()} == {4}


def test_a_slow_start_is_paid_about_twenty_times() -> None:
    """The script and its profile, first measurements, the proof, and the fifteen launches of a verification."""
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.2)}
    levers = (switchable("half"), switchable("step"), switchable("idle"))
    script = FakeScript(effects=effects, optimizer=0.004, startup_seconds=60.0, **QUIET)
    study, executor = search(script, *levers)
    assert chosen(study) == {"half", "step"}
    assert executor.launches <= 2 + 2 + 3 + 15


def test_levers_that_are_all_useless_together_leave_no_plan() -> None:
    """More levers than are tried in all combinations, all dropped after the same launch."""
    names = ("one", "two", "three", "four", "five")
    for seed in range(6):
        study, _ = search(FakeScript(**QUIET), *map(switchable, names), seed=seed)
        assert study.status == "finished" and not chosen(study)


class SlowProofs(Counting):
    """Runs whose numbers are compared take longer than those before them let expect."""

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        if request.assignment.instrument(AlignRandomness) is not None:
            self._pass_time(25.0)
        return run


@pytest.mark.parametrize("others", [(), ("beside",)])
def test_results_that_were_compared_are_told_where_no_time_is_left_to_verify(others: tuple[str, ...]) -> None:
    names = ("half", *others)
    effects = {setting(it): Effect(compute=0.7) for it in names}
    executor = SlowProofs(FakeScript(effects=effects, **QUIET))  # type: ignore[arg-type]
    levers = named(*map(switchable, names), switchable("idle"))
    study = tune(WORKLOAD, Options(budget_seconds=160.0), executor, levers=levers, clock=executor.clock)
    assert study.status == "quick-look" and not executor.fresh()
    for name in names:
        verdict = outcomes(study)[name].verdict
        assert isinstance(verdict, Seen) and "not proved on fresh launches." in verdict.reason
        assert "No difference found within" in verdict.reason and "not compared" not in verdict.reason
        assert ("together: No difference" in verdict.reason) == bool(others)
