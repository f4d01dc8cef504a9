"""In a short budget the lever that answers the main finding is measured before levers that answer none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from fake_findings import answered_by, each_answered_by
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.diagnose.shares import at_most, exactly
from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.levers.support.switching import Switch
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Kept, Replicate, Seen, Skipped, Study, TurnRequest

EFFECTS = {setting("mixed-precision"): Effect(compute=0.6), setting("huge-pages"): Effect(compute=0.97)}


class Recording(FakeExecutor):
    """Records which levers each replicate compared."""

    def __init__(self, script: FakeScript, seed: int) -> None:
        super().__init__(script, seed=seed)
        self.compared: list[set[str]] = []

    def take_turns(self, request: TurnRequest) -> Replicate:
        self.compared.append({it.lever for arm in request.arms for it in arm.plan.settings})
        return super().take_turns(request)


def switchable(name: str, *choices: str) -> Lever:
    def switch(hooks: object, setting: object) -> Switch:
        raise AssertionError("a fake executor switches nothing")

    return replace(lever(name, *choices), switch=switch)


LEVERS = named(
    lever("allocator", proof="exact"),
    switchable("threads", "1", "2"),
    lever("garbage-collection", proof="exact"),
    lever("huge-pages", proof="exact"),
    switchable("mixed-precision"),
)


def search(
    monkeypatch: pytest.MonkeyPatch, *, answers: Sequence[str], startup: float, minutes: float, seed: int = 0
) -> tuple[Study, Recording]:
    answered_by(monkeypatch, answers, share=0.6)
    executor = Recording(FakeScript(effects=EFFECTS, startup_seconds=startup), seed)
    options = Options(budget_seconds=60 * minutes)
    return tune(WORKLOAD, options, executor, levers=LEVERS, clock=executor.clock), executor


@pytest.mark.parametrize("seed", range(3))
def test_what_answers_the_main_finding_is_proved_before_the_budget_ends(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    study, executor = search(monkeypatch, answers=("mixed-precision",), startup=5.0, minutes=4, seed=seed)
    assert "mixed-precision" in executor.compared[0]
    (outcome,) = [it for it in study.outcomes if it.lever == "mixed-precision"]
    assert isinstance(outcome.verdict, Kept)
    assert [it.lever for it in study.plan.settings] == ["mixed-precision"]


class SettlesLate(Recording):
    """The first launch that switches is not settled before its time is over: it shows one round, which says nothing."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        is_first = request.one_launch and not any("mixed-precision" in it for it in self.compared)
        began = self.seconds
        turns = super().take_turns(request)
        if not is_first:
            return turns
        self._pass_time(max(0.0, (request.most_seconds or 0.0) - (self.seconds - began)))
        return msgspec.structs.replace(turns, rounds=tuple(it[:1] for it in turns.rounds))


@pytest.mark.parametrize("minutes", [2.5, 3, 4])
def test_what_was_cut_before_it_showed_anything_comes_before_what_answers_nothing(
    monkeypatch: pytest.MonkeyPatch, minutes: float
) -> None:
    answered_by(monkeypatch, ["mixed-precision"], share=0.6)
    executor = SettlesLate(FakeScript(effects=EFFECTS, startup_seconds=5.0), 0)
    levers = LEVERS | {"compile": replace(switchable("compile"), starts_slowly=True)}
    tune(WORKLOAD, Options(budget_seconds=60 * minutes), executor, levers=levers, clock=executor.clock)
    first, second, *_ = executor.compared
    assert "mixed-precision" in first and "mixed-precision" in second


@pytest.mark.parametrize("minutes", [2, 3, 4, 6])
def test_it_comes_first_however_slowly_the_script_starts(monkeypatch: pytest.MonkeyPatch, minutes: float) -> None:
    _, executor = search(monkeypatch, answers=("mixed-precision",), startup=30.0, minutes=minutes)
    assert "mixed-precision" in executor.compared[0]
    assert not {"huge-pages", "allocator", "garbage-collection"} & executor.compared[0]


def test_with_enough_time_levers_that_need_a_launch_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """They affect what the others show: a slow loader hides a faster model."""
    study, executor = search(monkeypatch, answers=("mixed-precision",), startup=5.0, minutes=20)
    assert executor.compared[0] == {"allocator", "garbage-collection", "huge-pages"}
    assert [it.lever for it in study.plan.settings] == ["mixed-precision"]


def test_a_finding_that_a_launch_answers_keeps_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    _, executor = search(monkeypatch, answers=("huge-pages",), startup=5.0, minutes=4)
    assert "huge-pages" in executor.compared[0] and "mixed-precision" not in executor.compared[0]


@pytest.mark.parametrize(("at_most_of_a_step", "comes_first"), [(0.23, "mixed-precision"), (0.03, "huge-pages")])
def test_a_large_cost_of_which_a_bound_is_known_comes_before_a_small_one(
    monkeypatch: pytest.MonkeyPatch, at_most_of_a_step: float, comes_first: str
) -> None:
    """What a product of matrices would take in another format is known at most; page faults are counted."""
    costs = ((("huge-pages",), exactly(0.045)), (("mixed-precision",), at_most(at_most_of_a_step)))
    each_answered_by(monkeypatch, *costs)
    executor = Recording(FakeScript(effects=EFFECTS, startup_seconds=5.0), 0)
    tune(WORKLOAD, Options(budget_seconds=240.0), executor, levers=LEVERS, clock=executor.clock)
    assert comes_first in executor.compared[0]
    assert not {"mixed-precision", "huge-pages"} <= executor.compared[0]


def test_where_none_of_the_first_is_promising_the_others_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFECTS, setting("mixed-precision"), Effect(compute=1.2))
    _, executor = search(monkeypatch, answers=("mixed-precision",), startup=5.0, minutes=4)
    assert "mixed-precision" in executor.compared[0]
    assert any({"allocator", "garbage-collection", "huge-pages"} & it for it in executor.compared[1:])


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("budget", [190.0, 210.0, 230.0, 250.0])
def test_what_one_launch_can_compare_comes_before_a_proof_of_anything(budget: float, seed: int) -> None:
    """A usual verification leaves no time for first measurements here, and an arbitrary lever would be verified."""
    effects = {setting("half"): Effect(compute=0.5), setting("step"): Effect(optimizer=0.3)}
    script = FakeScript(effects=effects, startup_seconds=4.0, launch_noise=0.004, round_noise=0.01)
    executor = FakeExecutor(script, seed=seed)
    others = (lever("pages", proof="exact"), lever("freed", proof="exact"))
    switched = (replace(switchable("half"), bound=lambda situation: 4.0), switchable("step"), switchable("idle"))
    slow = replace(switchable("compile", "default", "overhead"), starts_slowly=True)
    levers = named(*others, slow, *switched)
    study = tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=levers, clock=executor.clock)
    assert {it.lever for it in study.plan.settings} == {"half", "step"}
    assert study.verification is not None and study.verification.speed.verdict == "faster"
    assert executor.seconds <= budget
    assert "compile" in {it.lever for it in study.outcomes}, "it is not forgotten"


SIX = ("first", "second", "third", "fourth", "fifth", "half")


def six_levers(step: float, budget: float, seed: int) -> tuple[Study, Recording]:
    """A search among six levers that a process can switch, of which the last one halves a step."""
    effects = {setting("half"): Effect(compute=0.5)}
    quiet = {"launch_noise": 0.004, "round_noise": 0.01}
    executor = Recording(FakeScript(effects=effects, startup_seconds=4.0, compute=step, **quiet), seed)
    levers = named(*map(switchable, SIX))
    return tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=levers, clock=executor.clock), executor


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("step", "budget"), [(0.036, 180.0), (0.1, 220.0), (0.1, 260.0)])
def test_a_proof_with_the_fewest_launches_and_rounds_is_better_than_none(step: float, budget: float, seed: int) -> None:
    """The unmodified script again and with nudged weights is launched only where results differ."""
    study, executor = six_levers(step, budget, seed)
    assert study.verification is not None, study.status_text
    assert [it.lever for it in study.verification.candidate.settings] == ["half"]
    assert executor.seconds <= budget


@pytest.mark.parametrize("budget", [160.0, 200.0])
def test_where_a_proof_leaves_no_time_for_a_look_at_several_levers_all_are_looked_at(budget: float) -> None:
    """Rather than that an arbitrary one is proved."""
    study, executor = six_levers(0.1, budget, 0)
    assert study.status == "quick-look" and study.needed_seconds is not None
    assert executor.compared[0] == set(SIX)


@pytest.mark.parametrize("budget", [120.0, 160.0, 200.0])
def test_the_budget_that_is_advised_is_not_that_of_trials_one_by_one(budget: float) -> None:
    """What is tried at once has one verification and no trial before it; 220 s are enough, as above."""
    study, _ = six_levers(0.1, budget, 0)
    assert study.status == "quick-look" and study.needed_seconds is not None
    assert study.needed_seconds <= 2 * 220.0
    advised, _ = six_levers(0.1, study.needed_seconds, 0)
    assert advised.verification is not None


class CutOff(Recording):
    """Its replicates end with their time, after so many rounds."""

    rounds_done = 2

    def take_turns(self, request: TurnRequest) -> Replicate:
        whole = super().take_turns(request)
        return msgspec.structs.replace(whole, rounds=tuple(it[: self.rounds_done] for it in whole.rounds))


@pytest.mark.parametrize("budget", [120.0, 140.0])
@pytest.mark.parametrize(("rounds", "is_shown"), [(1, False), (2, True)])
def test_a_first_measurement_that_ends_with_its_time_shows_what_two_rounds_do(
    monkeypatch: pytest.MonkeyPatch, budget: float, rounds: int, is_shown: bool
) -> None:
    monkeypatch.setattr(CutOff, "rounds_done", rounds)
    executor = CutOff(FakeScript(effects=EFFECTS, startup_seconds=4.0, compute=0.1), 0)
    study = tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=LEVERS, clock=executor.clock)
    assert study.status == "quick-look", study.status_text
    verdicts = {it.lever: it.verdict for it in study.outcomes}
    shown = verdicts["mixed-precision"]
    assert isinstance(shown, Seen if is_shown else Skipped), shown


QUIET: Mapping[str, float] = {"launch_noise": 0.006, "round_noise": 0.02}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("budget", "startup", "feed"), [(200.0, 4.0, Effect(data=0.2)), (345.0, 10.0, Effect(compute=0.9))]
)
def test_launches_of_their_own_leave_time_for_a_look_at_what_a_process_can_switch(
    budget: float, startup: float, feed: Effect, seed: int
) -> None:
    """A small gain that needs launches of its own was measured twice and verified, and the large one never seen."""
    effects = {setting("half"): Effect(compute=0.6), setting("feed"): feed}
    script = FakeScript(data=0.005, compute=0.05, startup_seconds=startup, effects=effects, **QUIET)
    executor = Recording(script, seed)
    others = (lever("pages", proof="exact"), lever("feed", proof="exact"))
    levers = named(*map(switchable, ("half", "step", "idle")), *others)
    study = tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=levers, clock=executor.clock)
    assert "half" in {it.lever for it in study.plan.settings}, study.status_text
    assert study.verification is not None and executor.seconds <= budget
