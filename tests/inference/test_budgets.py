"""What a search finds in a budget, by arithmetic: the best engine that is right, and nothing worse than it proved."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec
import pytest
from inference.test_infer import WORKLOAD, FakeModel, verdict

from hotlap import plan as plans_of
from hotlap.experiment.costs import BLOCK_STEPS, Costs, Shape
from hotlap.experiment.observe import FEWEST_ALIKE, _fewest_of_a_block
from hotlap.experiment.options import Options
from hotlap.objective import for_inference
from hotlap.procedures.infer import infer
from hotlap.records import (
    Assignment,
    EngineReport,
    GenerationFacts,
    Kept,
    LaunchRequest,
    ModelFacts,
    NoGain,
    Plan,
    QualityLost,
    Replicate,
    Run,
    ScriptFacts,
    Setting,
    Study,
    TurnRequest,
)
from hotlap.render.blocks import Table
from hotlap.render.kinds.api import presenter_of
from hotlap.render.markdown import markdown_report
from hotlap.render.material import Material
from hotlap.render.sections import candidates

GAINS: Final = MappingProxyType(
    {
        ("onnx-runtime", "float32"): 1.1,
        ("onnx-runtime", "int8"): 3.0,
        ("openvino", "float32"): 1.2,
        ("openvino", "bfloat16"): 2.3,
        ("openvino", "int8"): 4.3,
        ("openvino", "int8-dynamic"): 2.8,
        ("torchao-int8", ""): 2.7,
        ("aot-inductor", ""): 1.2,
        ("aot-inductor", "int8"): 3.7,
        ("half-weights", ""): 2.0,
        ("mixed-precision", ""): 1.8,
        ("compile", ""): 1.2,
        ("int8-weights", ""): 0.5,
    }
)
BUILD_SECONDS = {"onnx-runtime": 12.0, "openvino": 15.0, "aot-inductor": 45.0}
START_SECONDS = {"torchao-int8": 45.0, "compile": 45.0, "onnx-runtime": 1.5, "openvino": 1.5}


@dataclass
class Timed(FakeModel):
    """Its launches take the time that they would take on two cores; an engine is built in its first launch."""

    call_seconds: float = 0.055
    start_seconds: float = 8.0
    now: float = 0.0
    built: set[Setting] = field(default_factory=set)

    def gain(self, plan: Plan) -> float:
        found = 1.0
        for it in plan.settings:
            precision = str(dict(it.values).get("precision", ""))
            found *= GAINS.get((it.lever, precision), GAINS.get((it.lever, ""), 1.0))
        return found

    def _seconds(self, arm: Assignment) -> float:
        return self.call_seconds / 8 / self.gain(arm.plan)

    def starting(self, plan: Plan) -> float:
        seconds = self.start_seconds
        for it in plan.settings:
            seconds += START_SECONDS.get(it.lever, 0.0)
            seconds += 0.0 if it in self.built else BUILD_SECONDS.get(it.lever, 0.0)
            self.built.add(it)
        return seconds

    def launch(self, request: LaunchRequest) -> Run:
        run, plan = super().launch(request), request.assignment.plan
        calls = len(run.steps.wall_seconds)
        if request.seconds is not None:
            calls = max(request.minimum_steps, min(calls, int(request.seconds / self.call_seconds)))
        starting = self.starting(plan)
        self.now += starting + calls * self.call_seconds / self.gain(plan)
        return msgspec.structs.replace(run, startup_seconds=starting)

    def take_turns(self, request: TurnRequest) -> Replicate:
        starts = [self.starting(it.plan) for it in request.arms]
        calls = [self.call_seconds / self.gain(it.plan) for it in request.arms]
        blocks = [it * max(request.block_steps, math.ceil(1.25 * request.block_seconds / it)) for it in calls]
        before = 0.75 * sum(starts) + sum(3 * (block / 2 + call) for block, call in zip(blocks, calls, strict=True))
        of_round = sum(blocks) + sum(calls)
        most = math.inf if request.most_seconds is None else request.most_seconds
        rounds = min(request.rounds, max(0, int((most - before) / of_round)) if most < math.inf else request.rounds)
        self.now += min(most, before) + rounds * of_round
        turns = super().take_turns(msgspec.structs.replace(request, rounds=max(1, rounds)))
        runs = tuple(
            msgspec.structs.replace(run, startup_seconds=it) for run, it in zip(turns.runs, starts, strict=True)
        )
        kept = turns.rounds if rounds else tuple(() for _ in turns.rounds)
        return msgspec.structs.replace(turns, runs=runs, rounds=kept)

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        wall = (self.call_seconds / self.gain(arm.plan),) * steps
        columns = msgspec.structs.replace(
            run.steps, wall_seconds=wall, phases=(("forward", wall),), samples=(8,) * steps
        )
        models = tuple(msgspec.structs.replace(it, input_shapes=((8, 128),)) for it in run.facts.models)
        facts = msgspec.structs.replace(run.facts, inputs=16, models=models)
        return msgspec.structs.replace(run, steps=columns, facts=facts)

    def _engine(self, plan: Plan) -> EngineReport | None:
        found = super()._engine(plan)
        seconds = BUILD_SECONDS.get(plan.settings[-1].lever, 0.0) if plan.settings else 0.0
        return msgspec.structs.replace(found, build_seconds=seconds) if found is not None else None


def searched(
    folder: Path,
    budget_seconds: float,
    *,
    call_seconds: float = 0.055,
    errors: Mapping[str, float] = MappingProxyType({}),
    **fields: object,
) -> Study:
    executor = Timed(folder=folder, engines=True, errors=dict(errors), call_seconds=call_seconds, **fields)  # type: ignore[arg-type]
    options = Options(budget_seconds=budget_seconds, skip=("batched-calls",))
    return infer(WORKLOAD, options, executor, clock=lambda: executor.now)


@pytest.mark.parametrize(
    ("budget_seconds", "call_seconds"), [(600.0, 0.0006), (900.0, 0.0006), (600.0, 0.055), (900.0, 0.055)]
)
def test_the_best_engine_is_verified_within_the_budget(
    tmp_path: Path, budget_seconds: float, call_seconds: float
) -> None:
    study = searched(tmp_path, budget_seconds, call_seconds=call_seconds)
    assert [plans_of.describe(it) for it in study.plan.settings] == ["openvino (precision int8)"]
    assert study.verification is not None and study.verification.candidate == study.plan
    assert study.verification.speed.speedup.value == pytest.approx(4.3, rel=0.05)
    assert study.spent_seconds <= budget_seconds + 30
    next_ = " ".join(words for words, _ in presenter_of(study.kind).next_commands(study, ""))
    assert "hotlap export artefact" in next_, "what was verified can be deployed, whatever was not tried"


@pytest.mark.parametrize("budget_seconds", [360.0, 420.0, 600.0])
def test_outputs_are_compared_before_a_wrong_engine_is_timed(tmp_path: Path, budget_seconds: float) -> None:
    """Fifteen launches of int8 were timed before it was refused, and nothing else was proved in six minutes."""
    wrong = {"openvino int8": 0.9, "aot-inductor int8": 0.9, "onnx-runtime int8": 0.9}
    study = searched(tmp_path, budget_seconds, errors=wrong)
    assert [plans_of.describe(it) for it in study.plan.settings] == ["openvino (precision int8-dynamic)"]
    assert study.verification is not None and study.verification.quality is not None
    refused = {plans_of.describe(it.plan.settings[-1]): it for it in study.refused}
    assert "openvino (precision int8)" in refused
    assert refused["openvino (precision int8)"].gain == pytest.approx(4.3, rel=0.05)
    assert all(it.plan != one.plan for it in study.refused for one in study.candidates), "and none was timed further"
    shown = markdown_report(study)
    assert "If quality did not count, openvino (precision int8) (one replicate, no interval) would win" in shown
    assert "compared before their speed" in shown and "Pareto: no other" in shown


def test_a_study_in_which_every_form_was_refused_lists_them(tmp_path: Path) -> None:
    executor = Timed(folder=tmp_path, engines=True, errors={"openvino": math.nan})
    options = Options(budget_seconds=600.0, only=("openvino",))
    study = infer(WORKLOAD, options, executor, clock=lambda: executor.now)
    assert not study.plan.settings and not study.candidates and len(study.refused) > 1
    assert all(not it.quality.verified for it in study.refused)
    shown = markdown_report(study)
    assert "openvino (precision int8)" in shown and "compared before their speed" in shown
    assert "Pareto: no other" not in shown and "in fresh launches. Quality is" not in shown, "nothing was compared"


def test_less_memory_is_no_speedup(tmp_path: Path) -> None:
    """Where memory is the goal, a first measurement shows how much less of it is needed."""
    executor = Timed(folder=tmp_path, engines=True, errors={"openvino": 0.9}, smaller=frozenset({"openvino"}))
    goal = for_inference("memory", slowdown=2.0, p99_seconds=None)
    options = Options(budget_seconds=600.0, only=("openvino",), objective=goal)
    study = infer(WORKLOAD, options, executor, clock=lambda: executor.now)
    assert study.refused[0].gain == pytest.approx(2.0, rel=0.05)
    lost = verdict(study, "openvino")
    assert isinstance(lost, QualityLost) and lost.speedup is None
    section = candidates.everywhere(Material(study=study))
    assert section is not None and isinstance(section.body[0], Table)
    assert [row[1] for row in section.body[0].rows if row[0].startswith("openvino")] == [""] * len(study.refused)
    shown = " ".join(markdown_report(study).split())
    assert "(one replicate, no interval) would win with 2.00x less peak memory" in shown


def test_slow_calls_of_one_shape_take_no_longer_than_fast_ones(tmp_path: Path) -> None:
    """Two calls of a third of a second are a block, where eight were: 900 s did not suffice then."""
    study = searched(tmp_path, 500.0, call_seconds=0.35)
    assert [plans_of.describe(it) for it in study.plan.settings] == ["openvino (precision int8)"]
    assert study.verification is not None and study.verification.candidate == study.plan


TWO_INPUTS = ModelFacts(kind="Net", parameters=1, input_shapes=((2, 3), (2,)), shapes_vary=False)


@pytest.mark.parametrize(
    ("fields", "wants_p99", "fewest"),
    [
        ({}, False, FEWEST_ALIKE),
        ({}, True, BLOCK_STEPS),
        ({"calls_in_script": True}, False, BLOCK_STEPS),
        ({"generation": GenerationFacts(prompts=4)}, False, BLOCK_STEPS),
        ({"step_source": "optimizer"}, False, BLOCK_STEPS),
        ({"models": (ModelFacts(kind="Net", parameters=1, input_shapes=((2, 3), (4, 3))),)}, False, BLOCK_STEPS),
        ({"models": (TWO_INPUTS,)}, False, FEWEST_ALIKE),
        ({"models": ()}, False, BLOCK_STEPS),
    ],
)
def test_only_calls_that_are_alike_have_short_blocks(fields: dict[str, Any], wants_p99: bool, fewest: int) -> None:
    models = (ModelFacts(kind="Net", parameters=1, input_shapes=((2, 3),)),)
    facts = msgspec.structs.replace(ScriptFacts(step_source="call", models=models), **fields)
    assert _fewest_of_a_block(facts, wants_p99=wants_p99) == fewest


def test_the_best_form_of_each_engine_is_looked_at_first(tmp_path: Path) -> None:
    """In 300 s on slower starts the first engine's second setting was looked at, and the other engine never."""
    study = searched(tmp_path, 300.0, start_seconds=6.0)
    assert [plans_of.describe(it) for it in study.plan.settings] == ["openvino (precision int8)"]


def test_nothing_useless_is_proved_while_better_ones_wait(tmp_path: Path) -> None:
    for budget_seconds in (240.0, 300.0, 360.0, 420.0, 500.0):
        study = searched(tmp_path, budget_seconds)
        assert all(it.comparison.speed.speedup.value > 1 for it in study.candidates), budget_seconds
        assert not (study.plan.settings and study.verification is None), budget_seconds


def test_what_is_far_behind_the_plan_gets_no_trial(tmp_path: Path) -> None:
    study = searched(tmp_path, 900.0)
    found = verdict(study, "half-weights")
    assert isinstance(found, NoGain) and "openvino (precision int8) gives 4.3" in found.reason
    assert isinstance(verdict(study, "openvino"), Kept)
    whole = infer(WORKLOAD, Options(skip=("batched-calls",)), Timed(folder=tmp_path, engines=True, errors={}))
    assert {it.plan.settings[-1].lever for it in whole.candidates} >= {"onnx-runtime", "openvino", "half-weights"}
    assert len(whole.candidates) > len(study.candidates), "without a budget all are compared"


def test_building_an_engine_is_no_cost_of_later_launches() -> None:
    costs = Costs(8.0, Shape(step_seconds=0.05), cores=2)
    plan = Plan(settings=(Setting(lever="openvino"),))
    engine = EngineReport(engine="OpenVINO", build_seconds=40.0)
    plain, first = Run(startup_seconds=8.0), Run(startup_seconds=50.0, engine=engine)
    turns = Replicate(runs=(plain, plain, first), rounds=((0.05,) * 8,) * 3)
    costs.learn_replicate(turns, [Plan(), Plan(), plan], 100.0)
    assert costs.of_launch(plan, 1) - costs.of_launch(Plan(), 1) == pytest.approx(2.0)
    again = msgspec.structs.replace(turns, runs=(plain, plain, Run(startup_seconds=11.0, engine=engine)))
    costs.learn_replicate(again, [Plan(), Plan(), plan], 60.0)
    assert costs.of_launch(plan, 1) - costs.of_launch(Plan(), 1) == pytest.approx(2.5)
