"""The choice between strategies for several ranks: predicted, ordered, excluded, tried and shown."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from fake_ranks import Ranks, RanksExecutor, evidence_in
from fake_script import WORKLOAD, Effect, FakeScript, Interrupt
from hypothesis import given
from hypothesis import strategies as draws

from hotlap.experiment.options import Options
from hotlap.objective import for_memory
from hotlap.plan import setting
from hotlap.procedures import strategies
from hotlap.procedures.search import tune
from hotlap.records import (
    Assignment,
    Kept,
    Limit,
    NoGain,
    Objective,
    Outcome,
    Run,
    Setting,
    ShardedFacts,
    Skipped,
    StrategyForecast,
    Study,
    ValidatedError,
)
from hotlap.render.strategies import HEADINGS, reasons, remarks, rows
from hotlap.study import create_study, open_study

ZERO = setting("sharded-optimizer")
SHARDED = setting("fully-sharded", reshard_after_forward=True)
KEPT = setting("fully-sharded", reshard_after_forward=False)
ONLY = ("sharded-optimizer", "fully-sharded")
BUDGET = 1800.0
EFFECTS = {
    ZERO: Effect(compute=1.1, optimizer=0.6, peak=0.9),
    SHARDED: Effect(compute=1.4, peak=0.6),
    KEPT: Effect(compute=1.2, peak=0.8),
}
ERRORS = tuple(
    ValidatedError(
        strategy=it,
        cases=6,
        mean_error=0.1,
        largest_error=0.3,
        most_ranks=4,
        machine="two cores",
        date="2026-11-25",
        ratio_errors=((2, 0.2), (4, 0.6)),
    )
    for it in ("zero-1", "fsdp2")
)


class Killed(BaseException):
    """In place of kill -9."""


@pytest.fixture(autouse=True)
def known_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that ship, which change when the benchmark is run again; and nothing waits for the disk."""
    monkeypatch.setattr(strategies, "validated_errors", lambda: ERRORS)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def script(tmp_path: Path) -> FakeScript:
    return FakeScript(
        cores=4,
        evidence_paths=(evidence_in(tmp_path),),
        effects=EFFECTS,
        compute=0.2,
        optimizer=0.03,
        peak_bytes=800_000_000,
    )


def searched(script: FakeScript, ranks: Ranks | None = None, **options: object) -> tuple[Study, RanksExecutor]:
    executor = RanksExecutor(script, ranks or Ranks())
    chosen = msgspec.structs.replace(Options(budget_seconds=BUDGET, only=ONLY), **options)
    return tune(WORKLOAD, chosen, executor, clock=executor.clock), executor


def outcome_of(study: Study, lever: str) -> Outcome:
    return next(it for it in study.outcomes if it.lever == lever)


def forecasts_of(study: Study) -> dict[Setting, StrategyForecast]:
    assert study.strategies is not None
    return {it.setting: it for it in study.strategies.forecasts}


def collectives_in(executor: RanksExecutor) -> Iterator[bytes]:
    return (
        it for it in executor.requests if b'"processes"' in it and b'"assignment"' not in it and b'"arms"' not in it
    )


def tried_settings(executor: RanksExecutor) -> set[str]:
    return {it.lever for it in (ZERO, SHARDED) if any(it.lever.encode() in one for one in executor.requests)}


def test_what_cannot_be_faster_is_not_tried_and_says_why(script: FakeScript) -> None:
    study, executor = searched(script)
    found = forecasts_of(study)
    assert found[ZERO].ratio / 1.2 > 1 / 1.01 and found[ZERO].error == 0.2
    verdict = outcome_of(study, "sharded-optimizer").verdict
    assert isinstance(verdict, Skipped) and "The largest error of earlier predictions was 20 %" in verdict.reason
    assert "even then it would not be faster" in verdict.reason
    assert tried_settings(executor) == {"fully-sharded"}
    assert found[KEPT].order == 1, "the shorter predicted step first"


def test_what_may_win_within_the_error_is_tried(script: FakeScript, monkeypatch: pytest.MonkeyPatch) -> None:
    worse = tuple(msgspec.structs.replace(it, ratio_errors=((2, 0.5),)) for it in ERRORS)
    monkeypatch.setattr(strategies, "validated_errors", lambda: worse)
    study, executor = searched(script)
    assert tried_settings(executor) == set(ONLY)
    assert all(it.order and not it.reason for it in forecasts_of(study).values())
    assert isinstance(outcome_of(study, "sharded-optimizer").verdict, NoGain)


@pytest.mark.parametrize(
    "ranks", [Ranks(processes=8), Ranks(model_bytes=40_000_000, bytes_per_second=2e9, processes=5)], ids=["8", "5"]
)
def test_outside_of_what_was_validated_nothing_is_excluded(script: FakeScript, ranks: Ranks) -> None:
    study, _ = searched(script, ranks)
    assert study.strategies is not None and not study.strategies.validated
    assert all(it.error is None and it.order for it in study.strategies.forecasts)


@given(
    ratio=draws.floats(0.2, 5.0),
    error=draws.one_of(draws.none(), draws.floats(0.0, 3.0)),
    slowdown=draws.one_of(draws.none(), draws.floats(1.0, 3.0)),
)
def test_only_what_is_too_slow_within_its_error_is_excluded(
    ratio: float, error: float | None, slowdown: float | None
) -> None:
    """A strategy whose true step is as short as the error allows is excluded only if even that would not win."""
    objective = Objective() if slowdown is None else for_memory(slowdown)
    forecast = StrategyForecast(strategy="fsdp2", setting=SHARDED, ratio=ratio, error=error)
    reason = strategies.reason_against(forecast, 0, Options(objective=objective))
    shortest = 0.0 if error is None else ratio / (1 + error)
    most = 1 / 1.01 if slowdown is None else slowdown
    assert bool(reason) is (shortest > most)


def test_for_memory_the_smallest_is_first_and_the_limit_of_time_counts(script: FakeScript) -> None:
    study, _ = searched(script, objective=for_memory(1.5))
    found = forecasts_of(study)
    assert [it.setting for it in sorted(found.values(), key=lambda it: it.order)] == [SHARDED, KEPT, ZERO]
    assert [it.lever for it in study.plan.settings] == ["fully-sharded"]
    assert isinstance(outcome_of(study, "fully-sharded").verdict, Kept)
    study, _ = searched(script, objective=for_memory(1.05))
    verdict = outcome_of(study, "fully-sharded").verdict
    assert not isinstance(verdict, Kept)
    excluded = [it for it in forecasts_of(study).values() if not it.order]
    assert excluded and all("slower than is allowed" in it.reason for it in excluded)


def test_a_limit_of_memory_and_a_full_device_rule_strategies_out(script: FakeScript) -> None:
    limited = Objective(limits=(Limit(metric="host_peak_bytes", most=0.8),))
    study, _ = searched(script, objective=limited)
    assert "0.80x is allowed" in forecasts_of(study)[KEPT].reason
    script.memory_bytes = 700_000_000
    full, _ = searched(script)
    found = forecasts_of(full)
    assert found[ZERO].fits is False and found[SHARDED].fits is True
    assert found[ZERO].reason == "By the estimate of its memory it does not fit."


def test_a_script_that_shards_itself_is_compared_with_its_own_way(script: FakeScript) -> None:
    shards = ShardedFacts(api="fsdp2", units=11, processes=2, reshards=True)
    study, _ = searched(script, Ranks(shards=shards), only=("reshard-after-forward",))
    assert study.strategies is not None and study.strategies.reshards is True
    (other,) = study.strategies.forecasts
    assert other.reshards is False and other.ratio < 1 and other.peak_bytes > study.strategies.peak_bytes


def test_the_table_has_predictions_errors_and_measurements(script: FakeScript) -> None:
    study, _ = searched(script, objective=for_memory(1.5))
    choice = study.strategies
    assert choice is not None
    own, *others = rows(study, choice)
    assert len(own) == len(HEADINGS) and own[0] == "DDP (the script's)" and own[1] == ""
    first = dict(zip(HEADINGS, others[0], strict=True))
    assert first["strategy"] == "FSDP2" and first[">error"] == "20 %" and first[">predicted"].endswith("x")
    assert " to " in first[">measured"], "a trial has an interval"
    kept = dict(zip(HEADINGS, others[1], strict=True))
    assert kept["strategy"] == "FSDP2, weights kept" and kept[">measured"].endswith("x")
    assert any("two cores, 2026-11-25" in it for it in remarks(choice))
    excluded, _ = searched(script)
    assert excluded.strategies is not None
    assert any(it.startswith("ZeRO-1: It is predicted") for it in reasons(excluded.strategies))
    assert "not tried" in next(it for it in rows(excluded, excluded.strategies) if it[0] == "ZeRO-1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("rates", "measures no collectives"),
        ("trace", "no trace of a backward pass was recorded"),
        ("slow", "the measured collectives take longer than the step"),
        ("budget", "The budget is too small to measure them"),
    ],
)
def test_without_a_prediction_the_search_says_so_and_goes_on(script: FakeScript, change: str, said: str) -> None:
    ranks = Ranks(bytes_per_second={"rates": 0.0, "slow": 1e6}.get(change, 1e9))
    if change == "trace":
        script.evidence_paths = ()
    study, executor = searched(script, ranks, **({"budget_seconds": 450.0} if change == "budget" else {}))
    assert study.strategies is None
    assert any(said in it for it in study.warnings)
    verdict = outcome_of(study, "fully-sharded").verdict
    assert isinstance(verdict, Skipped) and "was not predicted" in verdict.reason
    assert not isinstance(outcome_of(study, "sharded-optimizer").verdict, Skipped)
    assert bool(list(collectives_in(executor))) is (change != "budget")


def test_nothing_is_measured_where_there_is_nothing_to_choose(script: FakeScript) -> None:
    study, executor = searched(script, Ranks(processes=1))
    assert study.strategies is None and not list(collectives_in(executor)) and not study.warnings
    study, executor = searched(script, only=("gradient-buckets",))
    assert study.strategies is None and len(list(collectives_in(executor))) == 1, "only for the finding slow-link"


class Whole(RanksExecutor):
    """The lever leaves every model as it was, and says so."""

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        run = super()._run(arm, steps, noise)
        shards = any(it.lever == "fully-sharded" for it in arm.plan.settings)
        notes = ("The script writes to /tmp.", *(("A model stays whole on every rank: it is one block.",) * shards))
        return msgspec.structs.replace(run, notes=notes)


@pytest.mark.parametrize("slowdown", [None, 1.5])
def test_a_lever_that_changed_nothing_is_not_silent(script: FakeScript, slowdown: float | None) -> None:
    executor = Whole(script, Ranks())
    objective = Objective() if slowdown is None else for_memory(slowdown)
    options = Options(budget_seconds=BUDGET, only=ONLY, objective=objective)
    study = tune(WORKLOAD, options, executor, clock=executor.clock)
    assert "fully-sharded: A model stays whole on every rank: it is one block." in study.warnings
    assert study.warnings.count("The script writes to /tmp.") == 1


def test_killed_at_each_call_the_choice_is_the_same(script: FakeScript, tmp_path: Path) -> None:
    options = Options(budget_seconds=BUDGET, only=ONLY)

    def run(root: Path, interrupt: Interrupt | None, *, new: bool) -> tuple[Study, RanksExecutor]:
        executor = RanksExecutor(script, Ranks(), interrupt=interrupt)
        with create_study(root, WORKLOAD, options) if new else open_study(root) as journal:
            return tune(journal.workload, options, executor, journal=journal, clock=executor.clock), executor

    expected, whole = run(tmp_path / "whole", None, new=True)
    assert expected.strategies is not None
    for call in range(1, len(whole.requests) + 1, 3):
        root = tmp_path / str(call)
        with pytest.raises(Killed):
            run(root, Interrupt(call, Killed), new=True)
        study, executor = run(root, None, new=False)
        assert study.strategies == expected.strategies and study.outcomes == expected.outcomes
        assert Counter(executor.requests) == Counter(whole.requests) - Counter(whole.requests[: call - 1])


def test_a_resumed_search_needs_no_trace(script: FakeScript, tmp_path: Path) -> None:
    options = Options(budget_seconds=BUDGET, only=ONLY)
    executor = RanksExecutor(script, Ranks())
    with create_study(tmp_path / "s", WORKLOAD, options) as journal:
        expected = tune(WORKLOAD, options, executor, journal=journal, clock=executor.clock)
    (tmp_path / "trace.json").unlink()
    (tmp_path / "evidence.json").unlink()
    again = RanksExecutor(script, Ranks())
    with open_study(tmp_path / "s") as journal:
        study = tune(WORKLOAD, options, again, journal=journal, clock=again.clock)
    assert not again.requests and study.strategies == expected.strategies
