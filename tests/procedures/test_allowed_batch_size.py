"""`hotlap tune --allow batch-size`: the knee is tried, learning is compared at equal samples, and advice is given."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap import plan as plans_of
from hotlap.experiment.options import BatchChoices, Options
from hotlap.levers.api import all_levers
from hotlap.procedures.search import tune
from hotlap.records import Kept, Parity, QualityLost, Skipped, Study, Verdict, WatchEvaluation

LEVERS = {"batch-size": all_levers()["batch-size"], **named(lever("cheap"))}


def tuned(
    *,
    allow: tuple[str, ...] = ("batch-size",),
    arguments: tuple[str, ...] = (),
    flag: str = "",
    budget: float | None = None,
    only: tuple[str, ...] = (),
    **script: Any,
) -> tuple[Study, FakeExecutor]:
    settings = {
        "has_loader": True, "samples_per_step": 8, "batch_size": 8, "launch_noise": 0.002, "fixed_share": 0.8,
        "seed_spread": 0.01, "largest_scale": 4.5, "effects": {plans_of.setting("cheap"): Effect(compute=0.5)},
        **script,
    }  # fmt: skip
    executor = FakeExecutor(FakeScript(**settings))
    options = Options(allow=allow, batch=BatchChoices(flag=flag), budget_seconds=budget, only=only)
    workload = msgspec.structs.replace(WORKLOAD, arguments=arguments)
    return tune(workload, options, executor, levers=LEVERS, clock=executor.clock), executor


def verdict_of(study: Study, name: str = "batch-size") -> Verdict:
    return next(it.verdict for it in study.outcomes if it.lever == name)


def test_without_permission_no_other_batch_size_is_run() -> None:
    study, executor = tuned(allow=())
    verdict = verdict_of(study)
    assert isinstance(verdict, Skipped) and "--allow batch-size" in verdict.reason
    assert study.batch_search is None and not any(b"resize-batches" in it for it in executor.requests)


def test_the_knee_joins_the_plan_when_as_much_is_learned_from_as_many_samples() -> None:
    study, executor = tuned()
    assert study.batch_search is not None and study.batch_search.knee == 32
    verdict = verdict_of(study)
    assert isinstance(verdict, Kept), verdict
    (setting,) = [it for it in study.plan.settings if it.lever == "batch-size"]
    assert dict(setting.values) == {"own": 8, "size": 32}
    assert "75 updates of 4 times the batch size, instead of 300" in verdict.reason
    assert "2,400 samples" in verdict.reason and "training loss" in verdict.reason
    assert study.losses is None, "losses of steps with other samples cannot be compared one by one"
    assert any(b"watch-evaluation" in it for it in executor.requests)


def test_the_other_levers_are_proved_without_it() -> None:
    study, _ = tuned()
    verdict = verdict_of(study, "cheap")
    assert isinstance(verdict, Kept) and verdict.comparison is not None
    quality = verdict.comparison.quality
    assert isinstance(quality, Parity) and quality.proof == "rounding"


def test_a_batch_that_learns_something_else_is_dropped_and_says_what_differs() -> None:
    study, _ = tuned(large_batch_loss=0.2)
    verdict = verdict_of(study)
    assert isinstance(verdict, QualityLost)
    assert "changes by +0." in verdict.reason and "a different seed alone" in verdict.reason
    assert not any(it.lever == "batch-size" for it in study.plan.settings)


def test_a_script_whose_batches_stay_as_they_were_is_not_taken_for_one_with_larger_batches() -> None:
    study, _ = tuned(resizable=False)
    assert isinstance(verdict_of(study), Skipped)


@pytest.mark.parametrize("script", [{"batch_size": None}, {"has_loader": False}])
def test_a_size_that_cannot_be_changed_is_a_reason(script: dict[str, Any]) -> None:
    verdict = verdict_of(tuned(**script)[0])
    assert isinstance(verdict, Skipped) and "--batch-flag" in verdict.reason


def test_where_no_larger_size_is_faster_the_own_one_stays() -> None:
    study, _ = tuned(fixed_share=0.0)
    verdict = verdict_of(study)
    assert isinstance(verdict, Skipped) and verdict.already and "8" in verdict.reason
    assert study.batch_search is not None
    assert min(it.batch_size for it in study.batch_search.rates) == 8, "a smaller size cannot be chosen"


def test_an_option_that_the_command_does_not_give_cannot_be_replaced() -> None:
    verdict = verdict_of(tuned(flag="--batch-size")[0])
    assert isinstance(verdict, Skipped) and "explicitly" in verdict.reason


def test_the_option_is_part_of_the_setting() -> None:
    study, _ = tuned(flag="--batch-size", arguments=("--batch-size", "8"))
    (setting,) = [it for it in study.plan.settings if it.lever == "batch-size"]
    assert dict(setting.values) == {"flag": "--batch-size", "own": 8, "size": 32}


def test_advice_has_the_measured_noise_scale() -> None:
    study, _ = tuned(noise=64.0)
    advice = study.batch_advice
    assert advice is not None and advice.noise is not None and advice.noise.scale is not None
    assert advice.noise.scale == pytest.approx(64.0)
    assert advice.noise.low < 64.0 < (advice.noise.high or 0.0)
    assert (advice.rule, advice.factor) == ("linear", 4.0)
    assert advice.tempered == pytest.approx((1 + 64 / 8) / (1 + 64 / 32))
    assert advice.samples_factor == pytest.approx((1 + 32 / 64) / (1 + 8 / 64))


def test_advice_without_gradients_says_so() -> None:
    advice = tuned()[0].batch_advice
    assert advice is not None and advice.noise is None and advice.noise_missing


def test_only_runs_of_this_proof_watch_evaluations() -> None:
    _, executor = tuned(allow=())
    tag = WatchEvaluation.__struct_config__.tag
    assert not any(str(tag).encode() in it for it in executor.requests)


def test_where_no_size_runs_the_reason_is_given() -> None:
    verdict = verdict_of(tuned(breaks_at=1.5)[0])
    assert isinstance(verdict, Skipped)
    assert (
        "No batch size larger than the script's own, 8, could be timed" in verdict.reason
        and "is invalid" in verdict.reason
    )


@pytest.mark.parametrize("budget", [120.0, 200.0])
def test_a_quick_look_names_a_budget_in_which_the_batch_size_is_proved(budget: float) -> None:
    study, _ = tuned(only=("batch-size",), budget=budget)
    assert study.status == "quick-look" and study.batch_search is not None
    assert study.needed_seconds is not None and study.needed_seconds > budget
    advised, _ = tuned(only=("batch-size",), budget=study.needed_seconds)
    assert isinstance(verdict_of(advised), Kept), advised.status_text


@pytest.mark.parametrize("budget", [240.0, 350.0, 500.0])
def test_with_a_little_more_time_it_is_proved(budget: float) -> None:
    assert isinstance(verdict_of(tuned(only=("batch-size",), budget=budget)[0]), Kept)


@pytest.mark.parametrize("only", [("batch-size",), ()])
def test_a_budget_in_which_no_size_could_be_timed_is_not_the_end(only: tuple[str, ...]) -> None:
    study, _ = tuned(only=only, budget=180.0)
    assert "the budget is too small" in getattr(verdict_of(study), "reason", "")
    assert study.status == "out-of-budget"
    assert study.needed_seconds is not None
    advised, _ = tuned(only=only, budget=study.needed_seconds)
    assert advised.batch_search is not None and advised.batch_search.knee > 8
