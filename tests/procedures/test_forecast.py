"""Every procedure says early how many launches are planned, revises that openly, and says what it came to."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript
from test_search import search
from test_together import switchable

sys.path.append(str(Path(__file__).parents[1] / "check"))

from pair import REVISION, SIDES, Pair

from hotlap.experiment.options import Options
from hotlap.experiment.plan_ahead import Forecast, Launches, PlanAhead
from hotlap.plan import setting
from hotlap.procedures.batch.search import search_batch
from hotlap.procedures.check import check
from hotlap.procedures.lab import run_lab
from hotlap.procedures.profile import profile
from hotlap.records import Progress

GOOD = FakeScript(effects={setting("half"): Effect(compute=0.5)})
SLOW_TO_START = FakeScript(
    effects={setting("half"): Effect(compute=0.6)}, startup_seconds=4.0, data=0.02, compute=0.07, optimizer=0.01
)
PLANS = re.compile(r"(?:About|Now about) (\d+) launch(?:es)? in (\d+ (?:s|min)) are planned in all")


class Counting(FakeExecutor):
    """Count the launches that were really made."""

    made = 0

    def launch(self, request):
        self.made += 1
        return super().launch(request)

    def take_turns(self, request):
        self.made += 1 if request.one_launch else len(request.arms)
        return super().take_turns(request)


def listened(script: FakeScript | None = None, **more) -> tuple[list[Progress], FakeExecutor]:
    told: list[Progress] = []
    _, executor = search(script, listen=told.append, **more)
    return told, executor


def test_the_plan_is_said_after_the_first_launch_and_before_the_next() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")))
    said = [it for it in told if PLANS.match(it.text)]
    assert said[0].launches == 1 and said[0].launches_planned > 20
    parts = ("for first measurements, then", "to prove what looks faster, then", "to profile the plan are to come")
    assert all(it in said[0].text for it in parts)
    before = told[: told.index(said[0])]
    assert before and not any(it.launches_planned for it in before)
    assert all(it.launches_planned and it.seconds_planned for it in told[told.index(said[0]) :])


def test_a_plan_changes_only_where_it_is_said() -> None:
    """Ten levers, of which most fail in ways that cost time, so that the first plan cannot be kept."""
    told, _ = listened()
    said = [it for it in told if PLANS.match(it.text)]
    assert len(said) >= 2 and all("instead of" in it.text for it in said[1:])
    plans = [it.launches_planned for it in told if it.launches_planned]
    changes = [new for old, new in pairwise(plans) if new != old]
    assert changes == [it.launches_planned for it in said[1:]]
    for it in said:
        found = PLANS.match(it.text)
        assert found is not None and int(found[1]) == it.launches_planned


def test_the_end_says_what_was_made(monkeypatch) -> None:
    monkeypatch.setattr("test_search.FakeExecutor", Counting)
    for script, levers in ((GOOD, named(lever("half"))), (FakeScript(), named(lever("idle")))):
        told, executor = listened(script, levers=levers)
        assert told[-1].stage == "end"
        assert told[-1].launches == executor.made
        assert told[-1].text.startswith(f"{executor.made} launches in ")
        assert f"; about {told[-1].launches_planned} launches in " in told[-1].text


def test_a_search_without_surprises_keeps_to_its_plan() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")))
    last = told[-1]
    assert abs(last.launches - last.launches_planned) <= 0.2 * last.launches_planned
    assert abs(last.spent_seconds - last.seconds_planned) <= 0.3 * last.seconds_planned


def test_a_plan_is_never_longer_than_the_budget() -> None:
    for quick in (False, True):
        told, _ = listened(GOOD, levers=named(lever("half")), budget_seconds=200.0, quick=quick)
        planned = [it.seconds_planned for it in told if it.launches_planned]
        assert planned and max(planned) <= 200.0


def test_a_quick_look_plans_no_proof() -> None:
    told, _ = listened(GOOD, levers=named(lever("half")), budget_seconds=200.0, quick=True)
    said = [it.text for it in told if PLANS.match(it.text)]
    assert said and not any("to prove" in it for it in said)


def test_no_plan_is_said_for_levers_that_the_budget_cannot_prove() -> None:
    effects = {setting("half"): Effect(compute=0.5), setting("small"): Effect(compute=0.93)}
    for budget in (180.0, 220.0, 340.0, 370.0):
        levers = named(lever("half"), lever("small"), lever("idle"))
        told, _ = listened(FakeScript(effects=effects), levers=levers, budget_seconds=budget)
        assert told[-1].launches_planned <= 1.4 * told[-1].launches, f"a budget of {budget:.0f} s"


@pytest.mark.parametrize("budget", [60.0, 90.0, 120.0, 180.0])
def test_a_budget_without_time_for_a_proof_plans_none_and_is_kept_to(budget: float) -> None:
    switched = map(switchable, ("half", "odd", "even", "more"))
    told, _ = listened(SLOW_TO_START, levers=named(lever("early"), lever("late"), *switched), budget_seconds=budget)
    said = [it.text for it in told if PLANS.match(it.text)]
    assert said and not any("to prove" in it or "to profile" in it for it in said)
    assert abs(told[-1].launches - told[-1].launches_planned) <= 1


def test_a_quick_look_at_levers_with_launches_of_their_own_is_planned() -> None:
    told, _ = listened(SLOW_TO_START, levers=named(lever("half"), lever("early"), lever("late")), budget_seconds=70.0)
    said = [it for it in told if PLANS.match(it.text)]
    assert [it.stage for it in said] == ["baseline", "screening"] and "for first measurements" in said[-1].text
    assert abs(told[-1].launches - told[-1].launches_planned) <= 1


@pytest.mark.parametrize("budget", [240.0, 270.0, 300.0, 360.0])
def test_a_budget_for_a_short_proof_plans_first_measurements_too(budget: float) -> None:
    told, _ = listened(SLOW_TO_START, levers=named(*map(switchable, ("half", "odd", "even"))), budget_seconds=budget)
    said = [it.text for it in told if PLANS.match(it.text)]
    assert "for first measurements, then" in said[-1] and "to prove what looks faster" in said[-1]
    assert abs(told[-1].launches - told[-1].launches_planned) <= 0.2 * told[-1].launches


def test_a_budget_cuts_what_is_spare_first() -> None:
    first, proof = Launches(10, 100.0, "for first measurements", spare=True), Launches(20, 60.0, "to prove it")
    whole = Forecast.of(first, Launches(0, 0.0, "for nothing"), proof)
    assert (whole.launches, whole.seconds) == (30, 160.0)
    assert whole.within(500.0) == whole
    assert [it.count for it in whole.within(110.0).parts] == [5, 20]
    assert [it.count for it in whole.within(30.0).parts] == [0, 10]
    assert whole.within(0.0).launches == 0 == whole.within(-5.0).launches
    assert whole.text == "10 launches in 2 min for first measurements, then 20 launches in 60 s to prove it are to come"


def test_a_plan_of_unknown_length_is_said_without_minutes() -> None:
    plan = PlanAhead()
    assert plan.outcome(1, 5.0) == ""
    first = Forecast.of(Launches(1, None, "to count"))
    assert plan.revise(first, launches=0, spent_seconds=0.0, budget_seconds=None) == "1 launch is planned to count"
    assert plan.outcome(1, 5.0) == "1 launch in 5 s was made; 1 launch was planned"
    said = plan.revise(
        Forecast.of(Launches(1, 20.0, "to look closer")), launches=1, spent_seconds=5.0, budget_seconds=None
    )
    assert said.startswith(
        "Now about 2 launches in 25 s are planned in all, instead of 1 launch: 1 launch in 20 s to look"
    )


FAKE = {"has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002}


def of_profile(listen) -> FakeExecutor:
    executor = Counting(FakeScript(**FAKE))
    profile(WORKLOAD, Options(batch_sizes=True), executor, listen, clock=executor.clock)
    return executor


def of_batch(listen) -> FakeExecutor:
    executor = Counting(FakeScript(**FAKE, fixed_share=0.5))
    search_batch(WORKLOAD, Options(), executor, listen, clock=executor.clock)
    return executor


def of_lab(listen) -> FakeExecutor:
    executor = Counting(FakeScript(effects={setting("mixed-precision"): Effect(compute=0.5)}))
    levers = named(lever("mixed-precision"), lever("compile"))
    run_lab(WORKLOAD, Options(), executor, listen, levers=levers, clock=executor.clock)
    return executor


def of_check(listen) -> FakeExecutor:
    class Counted(Counting, Pair):
        pass

    executor = Counted(Effect(loss=1 + 1e-9))
    check(WORKLOAD, REVISION, SIDES, Options(delta=0.05), executor, listen, clock=executor.clock)
    return executor


@pytest.mark.parametrize("procedure", [of_profile, of_batch, of_lab, of_check])
def test_every_procedure_says_its_plan_and_what_it_came_to(procedure: Callable[..., FakeExecutor]) -> None:
    told: list[Progress] = []
    executor = procedure(told.append)
    said = [it for it in told if PLANS.match(it.text)]
    assert said and said[0].launches == 1, "after the first launch, before the next"
    assert all("instead of" in it.text for it in said[1:])
    assert told[-1].stage == "end" and told[-1].launches == executor.made
    assert told[-1].text.startswith(f"{executor.made} launches in ")
    assert abs(told[-1].launches - told[-1].launches_planned) <= 0.25 * told[-1].launches_planned


@pytest.mark.parametrize("budget", [125.0, 130.0, 135.0])
def test_a_proof_with_few_rounds_has_all_its_launches(budget: float) -> None:
    """Time makes rounds fewer, and not launches."""
    script = FakeScript(effects={setting("half"): Effect(compute=0.5)}, launch_noise=0.004, round_noise=0.01)
    told, _ = listened(script, levers=named(lever("half")), budget_seconds=budget)
    assert told[-1].launches == 22 and abs(told[-1].launches_planned - 22) <= 1


@pytest.mark.parametrize("budget", [200.0, 250.0, 300.0, 360.0])
def test_a_lever_that_is_verified_straight_away_needs_no_other_plan(budget: float) -> None:
    """It was expected to have a trial before, or fewer launches, for which there was time with the usual rounds."""
    script = FakeScript(
        effects={setting("small"): Effect(compute=0.975)}, data=0.0, compute=0.1, startup_seconds=3.5, launch_noise=0.01
    )
    levers = named(switchable("first"), lever("small", proof="exact"))
    told, _ = listened(script, levers=levers, budget_seconds=budget)
    assert not [it.text for it in told if it.stage == "trial" and PLANS.match(it.text)]
    assert 0 <= told[-1].launches_planned - told[-1].launches <= 4
