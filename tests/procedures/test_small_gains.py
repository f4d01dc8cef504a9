"""Levers of which each gains too little for launches to show it, but not all together."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_levers import lever
from fake_script import Effect, FakeScript
from test_together import QUIET, Counting, chosen, outcomes, search

from hotlap.plan import setting
from hotlap.records import Kept, Study

NAMES = ("one", "two", "three")
LITTLE = 0.963
"""Of the computation: 2.6 % of a step."""


def searched(*gaining: str, budget_seconds: float, seed: int = 0) -> tuple[Study, Counting]:
    script = FakeScript(effects={setting(it): Effect(compute=LITTLE) for it in gaining}, **QUIET)
    levers = (replace(lever(it, proof="exact"), addresses=(f"cause-{it}",)) for it in NAMES)
    return search(script, *levers, budget_seconds=budget_seconds, seed=seed)


@pytest.mark.parametrize("seed", range(3))
def test_where_time_is_short_they_are_verified_together(seed: int) -> None:
    study, executor = searched(*NAMES, budget_seconds=130.0, seed=seed)
    assert chosen(study) == set(NAMES)
    assert len(executor.fresh()) == 5, "none had a trial of its own"
    assert study.verification is not None and study.verification.speed.speedup.low > 1
    for it in NAMES:
        verdict = outcomes(study)[it].verdict
        assert isinstance(verdict, Kept) and "first measurement only" in verdict.reason


def test_of_those_for_one_cause_only_the_best_is_among_them() -> None:
    effects = {setting(it): Effect(compute=LITTLE) for it in NAMES}
    same = (replace(lever(it, proof="exact"), addresses=("one-cause",)) for it in NAMES[1:])
    other = replace(lever("one", proof="exact"), addresses=("another",))
    _, executor = search(FakeScript(effects=effects, **QUIET), other, *same, budget_seconds=130.0)
    first = {it.lever for it in executor.fresh()[0].arms[2].plan.settings}
    assert "one" in first and len(first) == 2


def test_one_that_looks_faster_is_not_tried_with_others_that_do_not() -> None:
    _, executor = searched("one", budget_seconds=130.0)
    assert {len(arm.plan.settings) for it in executor.replicates for arm in it.arms} == {0, 1}


def test_where_there_is_time_each_has_a_trial_of_its_own() -> None:
    _, executor = searched(*NAMES, budget_seconds=3600.0)
    first = executor.fresh()[0].arms[2].plan.settings
    assert len(first) == 1
