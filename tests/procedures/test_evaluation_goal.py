"""A search for shorter evaluations: what is measured in each launch, what is proved, and what is refused."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import msgspec
import pytest
from fake_levers import lever, named
from fake_script import WORKLOAD, Effect, FakeExecutor, FakeScript

from hotlap.experiment.options import Options
from hotlap.experiment.with_evaluation import NO_EVALUATION, TOO_LATE_TO_COMPARE
from hotlap.levers.api import Lever
from hotlap.objective import for_evaluation, option_words, slowdown_of
from hotlap.plan import setting
from hotlap.procedures.search import tune
from hotlap.records import (
    EVALUATION_SECONDS,
    Assignment,
    HeldOutLoss,
    NoGain,
    NotVerified,
    QualityLost,
    Run,
    Study,
    WatchEvaluation,
)
from hotlap.render.lever_table import row

SECONDS = {"half": 0.5, "workers": 0.7, "wrong": 0.3, "slow": 0.4}
LOSSES = {"wrong": 1.01}


class Evaluating(FakeExecutor):
    """A script that evaluates for a second after every tenth step; levers make that shorter, or its loss another."""

    computes_losses = True

    def _run(self, arm: Assignment, steps: int, noise: random.Random) -> Run:
        run = super()._run(arm, steps, noise)
        names = [it.lever for it in arm.plan.settings]
        seconds = math.prod(SECONDS.get(it, 1.0) for it in names) * math.exp(noise.gauss(0.0, 0.005))
        loss = math.prod(LOSSES.get(it, 1.0) for it in names)
        rows = len(run.steps.wall_seconds)
        column = tuple(seconds if row % 10 == 9 else 0.0 for row in range(rows))
        found: tuple[HeldOutLoss, ...] = ()
        if arm.instrument(WatchEvaluation) is not None and self.computes_losses:
            found = tuple(
                HeldOutLoss(step=row, trained=row, loss=loss / (1 + row), samples=64) for row in range(9, rows, 10)
            )
        timed = msgspec.structs.replace(run.steps, evaluation_seconds=column, outside_seconds=column)
        return msgspec.structs.replace(run, steps=timed, evaluations=found)


def evaluation_lever(name: str, *, exact: bool = False) -> Lever:
    made = lever(name, proof="exact" if exact else "rounding", improves=(EVALUATION_SECONDS,))
    return replace(made, changes_evaluation=not exact)


LEVERS = named(evaluation_lever("half"), evaluation_lever("workers", exact=True), lever("fast"))


def search(executor: FakeExecutor, levers=LEVERS, **options: object) -> Study:
    chosen = Options(objective=for_evaluation(), **options)  # type: ignore[arg-type]
    return tune(WORKLOAD, chosen, executor, levers=levers, clock=executor.clock)


def verdicts(study: Study) -> dict[str, object]:
    return {it.lever: it.verdict for it in study.outcomes}


def test_levers_of_evaluations_are_kept_by_the_time_of_evaluations() -> None:
    executor = Evaluating(FakeScript(evaluates=True))
    study = search(executor)
    assert {it.lever for it in study.plan.settings} == {"half", "workers"}
    assert study.verification is not None
    found = {it.metric: it for it in study.verification.metrics}[EVALUATION_SECONDS]
    assert found.verdict == "better" and found.ratio.value == pytest.approx(0.35, rel=0.03)
    requests = [json.loads(line) for it in executor.requests[1:] for line in it.splitlines()]
    waits = [json.dumps(it["arms"]).count("await-evaluation") == len(it["arms"]) for it in requests if "arms" in it]
    assert waits and all(waits), "each arm of a replicate evaluates"


def test_an_evaluation_with_another_loss_is_refused() -> None:
    executor = Evaluating(FakeScript(evaluates=True))
    study = search(executor, named(evaluation_lever("wrong")))
    verdict = verdicts(study)["wrong"]
    assert not study.plan.settings and isinstance(verdict, QualityLost)
    assert "largest difference of a held-out loss is 1 %" in verdict.reason


def test_an_evaluation_without_a_loss_cannot_be_compared() -> None:
    executor = Evaluating(FakeScript(evaluates=True))
    executor.computes_losses = False
    study = search(executor, LEVERS)
    assert [it.lever for it in study.plan.settings] == ["workers"], "what is exact needs no held-out loss"
    verdict = verdicts(study)["half"]
    assert isinstance(verdict, NotVerified) and "no evaluation with a loss" in verdict.reason


def test_steps_may_not_become_slower_for_it() -> None:
    effects = {setting("slow"): Effect(compute=2.0)}
    study = search(Evaluating(FakeScript(evaluates=True, effects=effects)), named(evaluation_lever("slow")))
    verdict = verdicts(study)["slow"]
    assert isinstance(verdict, NoGain) and "1.1x of the script's is allowed" in verdict.reason


def test_a_script_that_was_not_seen_to_evaluate_is_told_so() -> None:
    study = search(FakeExecutor(FakeScript()))
    assert NO_EVALUATION in study.warnings and not study.plan.settings


def test_an_evaluation_that_comes_too_late_for_the_budget_is_said() -> None:
    study = search(Evaluating(FakeScript(evaluates=True)), budget_seconds=45.0)
    assert TOO_LATE_TO_COMPARE in study.warnings


def test_the_objective_is_repeated_by_its_options() -> None:
    assert option_words(for_evaluation(1.2)) == ["--goal", "evaluation", "--slowdown", "1.2"]
    assert slowdown_of(for_evaluation(1.2)) == 1.2


def test_a_quick_look_calls_the_gain_one_of_evaluations() -> None:
    study = search(Evaluating(FakeScript(evaluates=True)), quick=True, budget_seconds=900.0)
    shown = row(next(it for it in study.outcomes if it.lever == "half"))
    assert shown.speedup.endswith("x  evaluation") and 1.9 < float(shown.speedup.split("x")[0]) < 2.1
    assert not shown.memory
