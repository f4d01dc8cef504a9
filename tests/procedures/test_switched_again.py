"""What a process can switch and looked a little faster by itself has another launch, on top of the chosen levers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fake_script import WORKLOAD, Effect, FakeScript
from test_busy_first_launches import FASTER_BY_CHANCE, Busy
from test_together import QUIET, chosen, switchable

from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import Plan, Study, TurnRequest

EFFECTS = {setting("half"): Effect(compute=0.6), setting("step"): Effect(optimizer=0.1)}
LEVERS = ("half", "step", "layout", "idle")
A_LITTLE_FASTER = (1.04, 0.93, 1.05, 0.92)
"""About 2 %, and less than the standard error of six such rounds."""


class Layout(FakeScript):
    """Another layout of memory gains nothing by itself, and much where the convolutions are in half precision."""

    next_to_half = 0.85

    def phases(self, plan: Plan, *, replay: bool = False) -> dict[str, float]:
        seconds = super().phases(plan, replay=replay)
        if {"half", "layout"} <= {it.lever for it in plan.settings}:
            seconds["compute"] *= self.next_to_half
        return seconds


class Useless(Layout):
    next_to_half = 1.0


def search(
    kind: type[FakeScript] = Layout,
    factors: Sequence[float] = A_LITTLE_FASTER,
    *,
    startup_seconds: float = 2.0,
    budget_seconds: float | None = None,
) -> tuple[Study, Busy]:
    """A study in which the first launch of the layout by itself is disturbed."""
    executor = Busy({"layout": factors})
    executor.script = kind(effects=EFFECTS, optimizer=0.004, startup_seconds=startup_seconds, **QUIET)
    levers = {it: switchable(it) for it in LEVERS}
    options = Options() if budget_seconds is None else Options(budget_seconds=budget_seconds)
    return tune(WORKLOAD, options, executor, levers=levers, clock=executor.clock), executor


def launches_on_top(executor: Busy) -> list[TurnRequest]:
    """Those that switch the layout on top of half precision, before the first fresh launches."""
    before = executor.replicates[: executor.replicates.index(executor.fresh()[0])]
    return [it for it in before if it.one_launch and {"half", "layout"} <= _levers(it.arms[-1].plan)]


def _levers(plan: Plan) -> set[str]:
    return {it.lever for it in plan.settings}


def test_what_gains_more_next_to_the_others_is_part_of_the_plan() -> None:
    study, executor = search()
    (on_top,) = launches_on_top(executor)
    assert [_levers(it.plan) for it in on_top.arms] == [{"half", "step"}, {"half", "step"}, {"half", "step", "layout"}]
    assert chosen(study) == {"half", "step", "layout"}
    assert all(it.arms[2].plan == study.plan for it in executor.fresh()), "it had no trial of its own"


def test_what_gains_nothing_there_either_stays_out() -> None:
    study, executor = search(Useless)
    assert len(launches_on_top(executor)) == 1
    assert chosen(study) == {"half", "step"}


def test_what_looked_faster_by_chance_or_not_at_all_has_no_other_launch() -> None:
    for factors in (FASTER_BY_CHANCE, (1.0, 1.01, 0.99, 1.0)):
        _, executor = search(Useless, factors)
        assert not launches_on_top(executor)


def test_where_a_start_is_long_it_must_promise_more() -> None:
    _, executor = search(startup_seconds=60.0)
    assert not launches_on_top(executor)


@pytest.mark.parametrize("budget_seconds", [150.0, 180.0, 210.0, 240.0, 300.0, 600.0])
def test_it_takes_no_time_from_the_proof_of_what_was_chosen(budget_seconds: float) -> None:
    study, _ = search(Useless, budget_seconds=budget_seconds)
    assert study.verification is not None and chosen(study) == {"half", "step"}
