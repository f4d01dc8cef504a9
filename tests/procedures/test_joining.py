"""Exact variables join a plan on less evidence than other levers: they cost it no proof, no start and no line."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fake_findings import answered_by
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, kept, outcomes, switchable

from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Limit, NoGain, Objective, Plan, Proof, Replicate, Study, TurnRequest
from hotlap.trial.command import KEPT_WHILE_SWITCHING

KEPT = setting(KEPT_WHILE_SWITCHING)
HALF = setting("half")
SHORT = 150.0
"""Seconds in which what answers a finding is measured, and a plan verified, but nothing besides."""


def variable(name: str, proof: Proof = "exact") -> Lever:
    return replace(lever(name, proof=proof, addresses=(name,)), environment=lambda setting: {name: "1"})


class Allocating(FakeScript):
    """Half precision gains much where freed memory is kept, and next to nothing elsewhere."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        if HALF in plan.settings:
            seconds["compute"] *= 0.7 if KEPT in plan.settings else 0.98
        return seconds


class Switching(Counting):
    """A process that switches keeps what it freed."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        if not request.one_launch:
            return super().take_turns(request)
        plans = [it.plan if KEPT in it.plan.settings else _with(it.plan) for it in request.arms]
        arms = [msgspec.structs.replace(arm, plan=it) for arm, it in zip(request.arms, plans, strict=True)]
        turns = super().take_turns(msgspec.structs.replace(request, arms=tuple(arms)))
        runs = [msgspec.structs.replace(run, plan=arm.plan) for run, arm in zip(turns.runs, request.arms, strict=True)]
        self.replicates[-1] = request
        return msgspec.structs.replace(turns, runs=tuple(runs))


def _with(plan: Plan) -> Plan:
    return Plan(settings=(*plan.settings, KEPT))


def search(script: FakeScript, *levers: Lever, seed: int = 0, **options: object) -> tuple[Study, Switching]:
    executor = Switching(script, seed)
    study = tune(WORKLOAD, Options(**options), executor, levers=named(*levers), clock=executor.clock)  # type: ignore[arg-type]
    return study, executor


@pytest.mark.parametrize("seed", range(3))
def test_what_was_in_force_within_the_launch_joins_the_levers_that_were_measured_there(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """There is no time to measure it by itself; without it the plan would be worth next to nothing."""
    answered_by(monkeypatch, ["half"], share=0.3)
    levers = switchable("half"), variable(KEPT_WHILE_SWITCHING)
    study, executor = search(Allocating(**QUIET), *levers, seed=seed, budget_seconds=SHORT)
    assert chosen(study) == {"half", KEPT_WHILE_SWITCHING}
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    assert all(it.one_launch for it in before), "it was measured in no launch of its own"
    found = kept(study, KEPT_WHILE_SWITCHING)
    had_it = "Verified together with half: the process that switched levers had it too; what it gives by itself was not"
    assert found.reason.startswith(had_it)
    assert found.first_ratio is None


def test_with_time_for_it_the_plan_is_launched_without_it_too() -> None:
    levers = switchable("half"), variable(KEPT_WHILE_SWITCHING)
    study, _ = search(Allocating(**QUIET), *levers)
    assert chosen(study) == {"half", KEPT_WHILE_SWITCHING}
    own = kept(study, KEPT_WHILE_SWITCHING).comparison
    assert own is not None and not own.within_launch and own.speed.speedup.value == pytest.approx(1.28, abs=0.05)


def test_what_was_in_force_stays_out_where_it_was_seen_to_make_steps_slower() -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.6), KEPT: Effect(compute=1.3)}, **QUIET)
    study, _ = search(script, switchable("half"), variable(KEPT_WHILE_SWITCHING))
    assert chosen(study) == {"half"}
    assert isinstance(outcomes(study)[KEPT_WHILE_SWITCHING].verdict, NoGain)


def test_a_limit_keeps_out_what_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    answered_by(monkeypatch, ["half"], share=0.3)
    within = Objective(limits=(Limit(metric="host_peak_bytes", most=1.5),))
    script = FakeScript(effects={HALF: Effect(compute=0.6)}, **QUIET)
    levers = switchable("half"), variable(KEPT_WHILE_SWITCHING)
    study, _ = search(script, *levers, budget_seconds=SHORT, objective=within)
    assert chosen(study) <= {"half"}


@pytest.mark.parametrize(
    ("other", "joins"),
    [(variable("small"), True), (lever("small", proof="exact"), False), (variable("small", "rounding"), False)],
    ids=["an exact variable", "no variable", "a variable that rounds"],
)
def test_an_exact_variable_joins_a_plan_for_a_gain_that_noise_may_explain(other: Lever, joins: bool) -> None:
    effects = {setting("large"): Effect(compute=0.5), setting("small"): Effect(compute=0.97)}
    script = FakeScript(effects=effects, launch_noise=0.0, round_noise=0.004)
    study, executor = search(script, lever("large", proof="exact", addresses=("large",)), other)
    plan = {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert plan == ({"large", "small"} if joins else {"large"})
    if joins:
        assert kept(study, "small").comparison is not None


def test_nothing_that_tunes_an_allocator_joins_another_one() -> None:
    """It would have no effect, or the one that it had by itself."""
    effects = {setting("allocator"): Effect(compute=0.5), setting("small"): Effect(compute=0.97)}
    script = FakeScript(effects=effects, launch_noise=0.0, round_noise=0.004)
    other = replace(
        lever("allocator", proof="exact", addresses=("allocator",)), environment=lambda setting: {"LD_PRELOAD": "x.so"}
    )
    _, executor = search(script, other, variable("small"))
    assert {it.lever for it in executor.fresh()[0].arms[2].plan.settings} == {"allocator"}


class LooksSo(Counting):
    """Fresh launches of the plan are so many times as fast as those without the small lever; one replicate is odd."""

    gain = 1.0

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        names = [{it.lever for it in arm.plan.settings} for arm in request.arms]
        if len(names) < 4 or {"large"} not in names:
            return turns
        gain = self.gain * (1.12 if len(self.fresh()) == 1 else 1.0)
        rounds = list(turns.rounds)
        rounds[2] = tuple(it / gain for it in rounds[names.index({"large"})])
        return msgspec.structs.replace(turns, rounds=tuple(rounds))


@pytest.mark.parametrize(("gain", "stays"), [(1.02, True), (0.985, False)])
def test_a_lever_that_looks_faster_in_the_verification_stays_in_the_plan(gain: float, stays: bool) -> None:
    """To leave it out takes another verification, and more often than not a little of the gain."""
    effects = {setting("large"): Effect(compute=0.5), setting("small"): Effect(compute=0.97)}
    executor = LooksSo(FakeScript(effects=effects, launch_noise=0.0, round_noise=0.004))
    executor.gain = gain
    levers = named(lever("large", proof="exact", addresses=("large",)), variable("small"))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == ({"large", "small"} if stays else {"large"})
    if stays:
        assert "its own share was not shown in fresh launches" in kept(study, "small").reason


def test_what_joined_for_a_small_gain_is_verified_where_the_others_change_the_results() -> None:
    effects = {HALF: Effect(compute=0.6, loss=1.05), setting("small"): Effect(compute=0.96)}
    script = FakeScript(effects=effects, launch_noise=0.0, round_noise=0.004)
    study, executor = search(script, switchable("half"), variable("small"))
    assert chosen(study) == {"small"}
    assert len(executor.fresh()) == 5, "one verification, without a trial before it"


@pytest.mark.parametrize("budget_seconds", [None, 400.0])
def test_what_joined_others_is_not_verified_where_none_of_these_keeps_the_results(budget_seconds: float | None) -> None:
    script = FakeScript(effects={HALF: Effect(compute=0.6, loss=1.05)}, **QUIET)
    levers = switchable("half"), variable(KEPT_WHILE_SWITCHING)
    study, executor = search(script, *levers, budget_seconds=budget_seconds)
    assert not chosen(study) and len(executor.fresh()) <= 3, "a trial, which ends as soon as no gain is in sight"
