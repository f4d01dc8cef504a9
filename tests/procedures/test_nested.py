"""Levers that need a process of their own, where the script starts slowly: one replicate chooses those of a plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeScript
from test_slow_starts import Starting, script
from test_together import QUIET, chosen, outcomes

from hotlap.experiment.options import Options
from hotlap.levers.api import Lever
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Assignment, Crashed, Ending, Failed, NoGain, Plan, Replicate, Study, TurnRequest

SLOW = 60.0
LITTLE, MORE, CLEARLY = Effect(compute=0.88), Effect(compute=0.86), Effect(compute=0.7)


def search(executor: Starting, *levers: Lever, budget: float | None = None) -> Study:
    return tune(WORKLOAD, Options(budget_seconds=budget), executor, levers=named(*levers), clock=executor.clock)


def exact(*names: str) -> list[Lever]:
    return [lever(name, proof="exact", addresses=(name,)) for name in names]


def firsts(executor: Starting) -> list[list[str]]:
    """The arms of each replicate of first measurements, each as the names of its levers."""
    own = [it for it in executor.replicates if it not in executor.fresh() and not it.one_launch]
    return [["+".join(one.lever for one in arm.plan.settings) for arm in it.arms] for it in own]


@pytest.mark.parametrize(
    ("startup", "expected"),
    [(SLOW, [["", "more", "more+little"]]), (1.0, [["", "more"], ["more", "more+little"]])],
    ids=["slow", "fast"],
)
def test_levers_are_measured_on_top_of_another_in_one_replicate_where_starts_are_slow(
    startup: float, expected: list[list[str]]
) -> None:
    executor = Starting(script(startup, more=MORE, little=LITTLE))
    study = search(executor, *exact("little", "more", "idle"))
    assert chosen(study) == {"more", "little"}
    first, *on_top = firsts(executor)
    assert first[0] == "" and set(first[1:]) == {"little", "more", "idle"}
    assert on_top[: len(expected)] == expected
    assert study.verification is not None and study.verification.speed.verdict == "faster"


def test_a_gain_that_is_clear_needs_no_second_measurement_by_itself() -> None:
    executor = Starting(script(SLOW, clearly=CLEARLY, little=LITTLE))
    study = search(executor, *exact("little", "clearly"))
    assert chosen(study) == {"clearly", "little"}
    assert firsts(executor)[1:] == [["clearly", "clearly+little"]]


def test_a_clear_gain_alone_needs_no_other_replicate() -> None:
    executor = Starting(script(SLOW, clearly=CLEARLY))
    study = search(executor, *exact("clearly", "idle"))
    assert chosen(study) == {"clearly"} and len(firsts(executor)) == 1


@dataclass
class SameEffect(FakeScript):
    """``more`` and ``other`` take away the same: together they are no faster than one."""

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        names = {it.lever for it in plan.settings}
        seconds = super().phases(plan, replay=replay)
        if names & {"more", "other"}:
            seconds["compute"] *= 0.85
        return seconds


def test_what_has_the_same_effect_as_the_best_does_not_join_it() -> None:
    effects = {setting("little"): LITTLE}
    executor = Starting(SameEffect(startup_seconds=SLOW, effects=effects, cores=2, **QUIET))
    study = search(executor, *exact("more", "other", "little"))
    assert len(chosen(study)) == 2 and "little" in chosen(study)
    assert len(firsts(executor)) == 2, "one that shows each, and one that shows them together"
    (dropped,) = {"more", "other"} - chosen(study)
    verdict = outcomes(study)[dropped].verdict
    assert isinstance(verdict, NoGain) and "irst measurement" in verdict.reason


class Lucky(Starting):
    """In its first measurement the lever ``luck`` looks 9 % faster than it is."""

    def take_turns(self, request: TurnRequest) -> Replicate:
        turns = super().take_turns(request)
        if len(self.replicates) > 1 or not turns.rounds[0]:
            return turns
        rounds = tuple(
            tuple(it / 1.09 for it in own) if any(one.lever == "luck" for one in arm.plan.settings) else own
            for arm, own in zip(request.arms, turns.rounds, strict=True)
        )
        return msgspec.structs.replace(turns, rounds=rounds)


def test_the_others_are_chosen_though_the_best_was_luck() -> None:
    executor = Lucky(script(SLOW, more=replace(MORE, compute=0.9)))
    study = search(executor, *exact("luck", "more"))
    assert firsts(executor)[1] == ["", "luck", "luck+more"]
    assert chosen(study) == {"more"}


class Crashing(Starting):
    """``odd`` crashes next to ``more``, and not by itself."""

    def _ending(self, arm: Assignment, steps: int) -> tuple[Ending, int]:
        if {"more", "odd"} <= {it.lever for it in arm.plan.settings}:
            return Crashed(exit_code=1, error="RuntimeError: planted"), 0
        return super()._ending(arm, steps)


def test_the_replicate_is_taken_again_without_what_fails_next_to_the_others() -> None:
    executor = Crashing(script(SLOW, more=MORE, odd=replace(MORE, compute=0.87), little=LITTLE))
    study = search(executor, *exact("more", "odd", "little"))
    assert chosen(study) == {"more", "little"}
    assert firsts(executor)[1:] == [["", "more", "more+odd", "more+odd+little"], ["", "more", "more+little"]]
    verdict = outcomes(study)["odd"].verdict
    assert isinstance(verdict, Failed) and "planted" in verdict.reason


def test_the_next_setting_takes_the_place_of_one_that_fails_there() -> None:
    settings = {setting("more", choice="a"): MORE, setting("more", choice="b"): LITTLE}
    slow = FakeScript(startup_seconds=SLOW, effects={**settings, setting("little"): LITTLE}, cores=2, **QUIET)

    class FailsAgain(Starting):
        def _ending(self, arm: Assignment, steps: int) -> tuple[Ending, int]:
            if len(self.replicates) > 2 and setting("more", choice="a") in arm.plan.settings:
                return Crashed(exit_code=1, error="RuntimeError: planted"), 0
            return super()._ending(arm, steps)

    executor = FailsAgain(slow)
    study = search(executor, lever("more", "a", "b", proof="exact"), *exact("little"))
    assert setting("more", choice="b") in study.plan.settings


def test_a_short_budget_is_kept() -> None:
    for budget in (480.0, 720.0, 1200.0):
        executor = Starting(script(SLOW, more=MORE, little=LITTLE))
        search(executor, *exact("little", "more", "idle"), budget=budget)
        assert executor.seconds <= 1.05 * budget
