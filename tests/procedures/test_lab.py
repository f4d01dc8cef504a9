"""The three-run lab on a fake script."""

from __future__ import annotations

from typing import Any

import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.diagnose.rules.small_mixed_precision_gain import bottleneck
from hotlap.errors import BudgetError
from hotlap.experiment.options import Options
from hotlap.plan import setting
from hotlap.procedures.lab import BOTH, run_lab
from hotlap.records import Failed, Kept, PhaseAccount, QualityLost, Skipped, Study

LEVERS = named(lever("mixed-precision"), lever("compile"))


def lab(script: FakeScript, levers=LEVERS, **options: Any) -> Study:
    executor = FakeExecutor(script)
    return run_lab(WORKLOAD, Options(**options), executor, levers=levers, clock=executor.clock)


def script(*, compute: float = 0.014, data: float = 0.004, mixed: Effect, compiled: Effect) -> FakeScript:
    effects = {setting("mixed-precision"): mixed, setting("compile"): compiled}
    return FakeScript(compute=compute, data=data, effects=effects)


def test_three_runs_and_their_reading() -> None:
    study = lab(script(mixed=Effect(compute=0.4), compiled=Effect(compute=0.7)))
    found = {it.lever: it.verdict for it in study.outcomes}
    assert set(found) == {"mixed-precision", BOTH}
    assert isinstance(found["mixed-precision"], Kept) and isinstance(found[BOTH], Kept)
    assert found[BOTH].comparison.speed.speedup.value > found["mixed-precision"].comparison.speed.speedup.value
    assert [it.lever for it in study.plan.settings] == ["mixed-precision", "compile"]
    assert "rule of thumb" in study.status_text and "This is more" in study.status_text
    assert study.status == "finished"


def test_a_small_gain_points_elsewhere() -> None:
    study = lab(script(data=0.1, mixed=Effect(compute=0.4), compiled=Effect()))
    assert "This is more" not in study.status_text
    assert "waiting for data takes the largest share of a step, 86 %" in study.status_text


def test_numbers_that_differ_are_not_kept() -> None:
    study = lab(script(mixed=Effect(compute=0.4, loss=1.02), compiled=Effect(compute=0.9)))
    assert all(isinstance(it.verdict, QualityLost) for it in study.outcomes)
    assert not study.plan.settings


def test_a_failing_arm_does_not_end_the_lab() -> None:
    study = lab(script(mixed=Effect(compute=0.4), compiled=Effect(fails="crash")))
    found = {it.lever: it.verdict for it in study.outcomes}
    assert isinstance(found[BOTH], Failed) and isinstance(found["mixed-precision"], Kept)


def test_an_obstacle_leaves_the_other_arm() -> None:
    levers = named(lever("mixed-precision", obstacle=Skipped(reason="no hardware")), lever("compile"))
    study = lab(script(mixed=Effect(), compiled=Effect(compute=0.5)), levers)
    found = {it.lever: it.verdict for it in study.outcomes}
    assert isinstance(found["mixed-precision"], Skipped) and isinstance(found["compile"], Kept)


def test_budget_too_small() -> None:
    with pytest.raises(BudgetError, match="needs about"):
        lab(script(mixed=Effect(), compiled=Effect()), budget_seconds=20)


def test_bottleneck_of_nothing() -> None:
    assert "could not be split" in bottleneck(PhaseAccount())
