"""Levers that need a process of their own are measured again on top of those that a process can switch."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from fake_findings import answered_by
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_together import QUIET, Counting, chosen, kept, outcomes, search, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    Assignment,
    Crashed,
    Ending,
    Failed,
    NoGain,
    Plan,
    Proof,
    Replicate,
    TurnRequest,
)


class Growing(FakeScript):
    """The memory that a lever keeps matters little, until another lever allocates more of it."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        names = {it.lever for it in plan.settings}
        if "keep" in names:
            seconds["compute"] *= 0.75 if "half" in names else 0.985
        return seconds


HALF = {setting("half"): Effect(compute=0.6)}
STEP = {setting("step"): Effect(optimizer=0.1)}


def names_of(request: TurnRequest) -> list[set[str]]:
    return [{it.lever for it in arm.plan.settings} for arm in request.arms]


@pytest.mark.parametrize("seed", range(3))
def test_what_matters_more_next_to_the_others_is_verified_together_with_them(seed: int) -> None:
    script = Growing(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    levers = (switchable("half"), switchable("step"), lever("keep", proof="exact"))
    study, executor = search(script, *levers, seed=seed)
    assert chosen(study) == {"half", "step", "keep"}
    assert all(it.arms[2].plan == study.plan for it in executor.fresh()), "no lever had a trial of its own"
    own = kept(study, "keep").comparison
    assert own.speed.speedup.value == pytest.approx(script.speedup(study.plan) / script.speedup(own.baseline), rel=0.03)


@pytest.mark.parametrize("budget_seconds", [160.0, 190.0, 260.0])
def test_it_takes_no_time_from_the_proof_of_what_was_chosen(budget_seconds: float) -> None:
    script = Growing(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    levers = (
        switchable("half"),
        switchable("step"),
        *(lever(it, proof="exact") for it in ("keep", "idle", "odd", "no")),
    )
    study, executor = search(script, *levers, budget_seconds=budget_seconds)
    assert study.verification is not None and chosen(study) >= {"half", "step"}
    assert ("keep" in chosen(study)) == (budget_seconds > 200)
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    on_top = [it for it in before if names_of(it)[0] == {"half", "step"}]
    assert len(on_top) == (budget_seconds > 200), "one replicate, with as many levers as fit"


def test_what_adds_nothing_stays_out_and_is_not_measured_on_top_again() -> None:
    script = FakeScript(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    idle = replace(lever("idle", proof="exact"), bound=lambda situation: 2.0)
    study, executor = search(script, switchable("half"), switchable("step"), idle)
    assert chosen(study) == {"half", "step"}
    assert isinstance(outcomes(study)["idle"].verdict, NoGain)
    on_top = [it for it in executor.replicates if {"half", "step", "idle"} in names_of(it)]
    assert len(on_top) == 1, "before the plan was proved, and not after it was verified"


class Lucky(Counting):
    """The first replicate on top of the plan shows a gain of 5 %, and the next one a loss."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        arms = names_of(request)
        if {"half", "step", "idle"} not in arms:
            return turns
        seen_before = sum({"half", "step", "idle"} in names_of(it) for it in self.replicates) > 1
        factor = 1.06 if seen_before else 1 / 1.055
        base = turns.rounds[0]
        rows = [
            tuple(it * factor for it in base) if "idle" in on else row
            for on, row in zip(arms, turns.rounds, strict=True)
        ]
        return msgspec.structs.replace(turns, rounds=tuple(rows))


def test_what_the_second_replicate_shows_to_be_slower_is_decided() -> None:
    executor = Lucky(FakeScript(effects={**HALF, **STEP}, optimizer=0.004, **QUIET))
    levers = named(switchable("half"), switchable("step"), lever("idle", proof="exact"))
    study = tune(WORKLOAD, Options(), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"half", "step"}
    assert sum({"half", "step", "idle"} in names_of(it) for it in executor.replicates) == 2, "it had no trial"
    verdict = outcomes(study)["idle"].verdict
    assert isinstance(verdict, NoGain) and verdict.comparison is None


class Crashing(Counting):
    """One lever crashes on top of another, and not by itself."""

    def _ending(self, arm: Assignment, steps: int) -> tuple[Ending, int]:
        if {"half", "odd"} <= {it.lever for it in arm.plan.settings}:
            return Crashed(exit_code=1, error="RuntimeError: planted"), 0
        return super()._ending(arm, steps)


def test_what_gained_by_itself_and_crashes_on_top_of_the_plan_is_not_launched_so_again() -> None:
    effects = {**HALF, **STEP, setting("odd"): Effect(compute=0.97)}
    executor = Crashing(FakeScript(effects=effects, optimizer=0.004, **QUIET))
    levers = named(switchable("half"), switchable("step"), lever("odd", proof="exact"))
    study = tune(WORKLOAD, Options(budget_seconds=150), executor, levers=levers, clock=executor.clock)
    assert chosen(study) == {"half", "step"}
    assert sum({"half", "step", "odd"} in names_of(it) for it in executor.replicates) == 1
    verdict = outcomes(study)["odd"].verdict
    assert isinstance(verdict, Failed) and "planted" in verdict.reason


def test_what_can_save_too_little_is_not_measured_on_top() -> None:
    """Of a step that is 1.6 times as fast, 1.5 % of the unmodified one are 2.5 %, which one replicate does not show."""
    bounded = replace(lever("keep", proof="exact"), bound=lambda situation: 1.015)
    script = Growing(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    _, executor = search(script, switchable("half"), switchable("step"), bounded)
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    assert not any({"half", "step", "keep"} in names_of(it) for it in before)


def test_a_script_that_starts_slowly_pays_for_that_only_where_a_gain_is_likely() -> None:
    slow = {"startup_seconds": 60.0, **QUIET}
    levers = (switchable("half"), switchable("step"), lever("keep", proof="exact"))
    _, executor = search(Growing(effects={**HALF, **STEP}, optimizer=0.004, **slow), *levers)
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    assert not any({"half", "step", "keep"} in names_of(it) for it in before)


def test_levers_that_gained_nothing_do_not_lengthen_the_launch_that_combines_two_that_did() -> None:
    effects = {**HALF, **STEP, setting("slower"): Effect(compute=1.015), setting("odd"): Effect(compute=1.015)}
    script = FakeScript(effects=effects, optimizer=0.004, **QUIET)
    study, executor = search(script, *map(switchable, ("half", "step", "slower", "odd")))
    alone, together = [it for it in executor.replicates if it.one_launch][:2]
    assert {"slower"} in names_of(alone)
    assert set().union(*names_of(together)) == {"half", "step"} and len(together.arms) == 5
    assert chosen(study) == {"half", "step"}


def test_the_launch_of_each_by_itself_leaves_time_to_combine_them() -> None:
    effects = {setting(it): Effect(compute=0.9) for it in ("one", "two", "three", "four")}
    levers = tuple(map(switchable, ("one", "two", "three", "four", "none")))
    lengths: list[float] = []
    for budget_seconds in range(150, 300, 10):
        _, executor = search(FakeScript(effects=effects, **QUIET), *levers, budget_seconds=float(budget_seconds))
        shared = [it for it in executor.replicates if it.one_launch]
        if len(shared) > 1:
            alone, together = (it.rounds * it.block_seconds for it in shared[:2])
            lengths.append(together / alone)
    assert len(lengths) > 5 and min(lengths) >= 0.5, lengths


class Slight(Growing):
    """What it keeps gains a little next to the other lever: noise of one replicate may explain that."""

    left = 1.0

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = FakeScript.phases(self, plan, replay=replay)
        if {"keep", "half"} <= {it.lever for it in plan.settings}:
            seconds["compute"] *= self.left
        return seconds


class FivePercent(Slight):
    left = 0.925


class LessThanTheNoiseOfOneReplicate(Slight):
    """3.7 %, and a replicate that shows 4 % is enough by itself."""

    left = 0.945


@pytest.mark.parametrize("kind", [FivePercent, LessThanTheNoiseOfOneReplicate])
def test_a_gain_that_noise_may_explain_is_measured_twice(kind: type[Slight]) -> None:
    script = kind(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"), lever("keep", proof="exact"))
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    assert sum({"half", "step", "keep"} in names_of(it) for it in before) == 2
    assert chosen(study) == {"half", "step", "keep"}


class LessThanTheNoiseOfTwoReplicates(Slight):
    """2.4 %, of which two replicates of 1.5 % show only that it is more than one standard error beyond 1 %."""

    left = 0.965


@pytest.mark.parametrize(("proof", "answers"), [("exact", True), ("exact", False), ("rounding", True)])
def test_a_small_gain_is_taken_of_an_exact_lever_that_answers_a_finding(
    monkeypatch: pytest.MonkeyPatch, proof: Proof, answers: bool
) -> None:
    answered_by(monkeypatch, ["keep"] if answers else [], share=0.05)
    noise = {"launch_noise": 0.001, "round_noise": 0.002}
    script = LessThanTheNoiseOfTwoReplicates(effects={**HALF, **STEP}, optimizer=0.004, **noise)
    _, executor = search(script, switchable("half"), switchable("step"), lever("keep", proof=proof))
    first = executor.fresh()[0]
    before = executor.replicates[: executor.replicates.index(first)]
    is_taken = proof == "exact" and answers
    assert sum({"half", "step", "keep"} in names_of(it) for it in before) == (2 if is_taken else 1)
    assert {it.lever for it in first.arms[2].plan.settings} - {"half", "step"} == ({"keep"} if is_taken else set())


class TwoSmallGains(FakeScript):
    """Each of two levers saves little by itself, and both together more than the noise of a replicate."""

    share = 0.03

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        seconds["compute"] *= (1 - self.share) ** len({"keep", "huge"} & {it.lever for it in plan.settings})
        return seconds


class TwoUselessOnes(TwoSmallGains):
    share = 0.0


BOTH = {"half", "step", "keep", "huge"}


def two_more(
    monkeypatch: pytest.MonkeyPatch, script: FakeScript, *, answered: bool = True, proof: Proof = "exact", **more: float
) -> tuple[set[str], list[list[set[str]]]]:
    """What is verified, and the launches on top of what a process can switch, before the first fresh ones."""
    answered_by(monkeypatch, ["half", *(("keep", "huge") if answered else ())], share=0.3)
    levers = switchable("half"), switchable("step"), lever("keep", proof=proof), lever("huge", proof=proof)
    study, executor = search(script, *levers, **more)
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    return chosen(study), [names_of(it) for it in before if not it.one_launch and names_of(it)[0] >= {"half", "step"}]


def test_likely_levers_are_measured_together_where_there_is_no_time_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    script = TwoSmallGains(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    assert two_more(monkeypatch, script, budget_seconds=150.0) == (BOTH, [[{"half", "step"}, BOTH]])


@pytest.mark.parametrize("seed", range(4))
def test_they_stay_out_if_they_gain_nothing_together(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    script = TwoUselessOnes(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    found, on_top = two_more(monkeypatch, script, budget_seconds=150.0, seed=seed)
    assert found <= {"half", "step"}, "none, where the unmodified script differed from itself"
    assert on_top == [[{"half", "step"}, BOTH]]


@pytest.mark.parametrize(("answered", "proof"), [(False, "exact"), (True, "rounding")])
def test_what_is_not_likely_or_costs_a_proof_is_not_taken_unseen(
    monkeypatch: pytest.MonkeyPatch, answered: bool, proof: Proof
) -> None:
    script = TwoSmallGains(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    _, on_top = two_more(monkeypatch, script, answered=answered, proof=proof, budget_seconds=150.0)
    assert BOTH not in [it for one in on_top for it in one]


def test_small_gains_that_none_shows_are_shown_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over some searches, since each gain by itself is within the noise of a replicate."""
    taken = []
    for seed in range(8):
        script = TwoSmallGains(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
        found, on_top = two_more(monkeypatch, script, budget_seconds=240.0, seed=seed)
        together = [it for it in on_top if len(it) == 2 and it[0] == {"half", "step"} and it[1] == BOTH]
        assert on_top[0] != [{"half", "step"}, BOTH], "there was time for each by itself"
        taken += [found == BOTH] if together else []
    assert len(taken) >= 2 and sum(taken) > len(taken) / 2


@pytest.mark.parametrize("budget_seconds", [260.0, 1200.0])
def test_what_starts_slowly_and_answers_nothing_waits_only_where_time_is_short(budget_seconds: float) -> None:
    effects = {**HALF, **STEP, setting("compile"): Effect(compute=0.9, startup_seconds=20.0)}
    script = FakeScript(effects=effects, optimizer=0.004, **QUIET)
    slow = replace(switchable("compile"), starts_slowly=True)
    study, executor = search(script, switchable("half"), switchable("step"), slow, budget_seconds=budget_seconds)
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    assert any({"compile"} <= it for one in before for it in names_of(one)) == (budget_seconds > 1000)
    assert study.verification is not None and chosen(study) >= {"half", "step"}
    assert outcomes(study)["compile"].verdict is not None


class Either(FakeScript):
    """Each of two levers keeps memory that another lever needs, and both together keep no more."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        names = {it.lever for it in plan.settings}
        if "half" in names and {"keep", "pages"} & names:
            seconds["compute"] *= 0.8
        return seconds


def test_of_two_that_answer_one_cause_the_better_one_is_chosen_and_another_cause_has_its_own() -> None:
    script = Either(effects={**HALF, **STEP, setting("feed"): Effect(data=0.7)}, optimizer=0.004, **QUIET)
    own = (replace(lever(it, proof="exact"), addresses=("page-faults",)) for it in ("keep", "pages"))
    feed = replace(lever("feed", proof="exact"), addresses=("loader-bound",))
    study, executor = search(script, switchable("half"), switchable("step"), *own, feed)
    first = {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert first >= {"half", "step", "feed"} and len(first & {"keep", "pages"}) == 1
    assert study.verification is not None and study.verification.speed.verdict == "faster"


class Both(FakeScript):
    """Each of two levers saves some of what another one costs, and both save more."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        names = {it.lever for it in plan.settings}
        if "half" in names:
            seconds["compute"] *= 0.8 if "keep" in names else 1.0
            seconds["compute"] *= 0.88 if "pages" in names else 1.0
        return seconds


@pytest.mark.parametrize("budget_seconds", [160.0, 180.0, 210.0, 240.0, 300.0, 600.0])
def test_of_two_that_answer_one_cause_the_other_one_joins_if_it_adds_to_the_better_one(budget_seconds: float) -> None:
    script = Both(effects={**HALF, **STEP}, optimizer=0.004, **QUIET)
    own = (replace(lever(it, proof="exact"), addresses=("page-faults",)) for it in ("keep", "pages"))
    study, executor = search(script, switchable("half"), switchable("step"), *own, budget_seconds=budget_seconds)
    assert study.verification is not None, "it takes no time from the proof"
    first = {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert first >= {"half", "step"}
    if budget_seconds > 250:
        assert first == {"half", "step", "keep", "pages"} == chosen(study)
        before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
        assert [{"keep"}, {"keep", "pages"}] in [[it - {"half", "step"} for it in names_of(one)] for one in before]


def test_what_needs_no_proof_joins_the_rest_of_a_plan_that_cannot_be_proved() -> None:
    """Kept memory gains 4 %, too little to join two levers that gain more, one of which changes the results."""
    effects = {setting("half"): Effect(compute=0.6, loss=1.05), setting("step"): Effect(optimizer=0.1)}
    script = FakeScript(effects={**effects, setting("keep"): Effect(compute=0.965)}, optimizer=0.004, **QUIET)
    study, executor = search(script, switchable("half"), switchable("step"), lever("keep", proof="exact"))
    first = {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert first == {"step", "keep"} == chosen(study)
    assert len(executor.fresh()) == 5 and study.verification is not None
