"""Several inputs in one call: outputs are those of each input alone, and what cannot share a call is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inference.conftest import Launch, Target
from inference.test_infer import WORKLOAD, FakeModel
from inference.test_inference_levers import SITUATION

from hotlap.experiment.options import Options
from hotlap.experiment.prove_outputs import units_for_all_inputs
from hotlap.levers.api import find
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.objective import for_inference
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.procedures.prospects import prospects_of
from hotlap.records import (
    Assignment,
    CaptureOutputs,
    Crashed,
    EngineReport,
    InferenceGoal,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    Stopped,
    Study,
)
from hotlap.render.markdown import markdown_report
from hotlap.runtime.hooks import Hooks
from hotlap.runtime.inference import _count_calibrated_inputs
from hotlap.runtime.shared_calls import calls_of, possible_sizes
from hotlap.trial.local import LocalExecutor

FOUR = Plan(settings=(Setting(lever="batched-calls", values=(("inputs", 4),)),))


def arguments(*rows: int, width: int = 3) -> list[Any]:
    return [((torch.randn(it, width),), {}) for it in rows]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from([3, 5])), min_size=1, max_size=12), st.integers(2, 6))
def test_each_input_gets_its_own_rows(shapes: list[tuple[int, int]], together: int) -> None:
    inputs: list[Any] = [((), {"rows": torch.randn(shape), "scale": 2.0}) for shape in shapes]

    def model(rows: torch.Tensor, scale: float) -> dict[str, Any]:
        return {"sums": rows.sum(1) * scale, "rows": [rows + 1]}

    calls = calls_of(torch, inputs, together)
    assert all(len(it.parts) <= together for it in calls) and len(calls) <= len(inputs)
    found = [answer for it in calls for answer in it.answers(model(**it.arguments[1]))]
    assert len(found) == len(inputs)
    for (_, own), answer in zip(inputs, found, strict=True):
        alone = model(**own)
        assert torch.allclose(answer["sums"], alone["sums"]) and torch.equal(answer["rows"][0], alone["rows"][0])


@pytest.mark.parametrize(
    ("inputs", "sizes"),
    [
        (arguments(*[2] * 16), ((4, 4), (16, 1))),
        (arguments(1, 2, 3, 4, 5, 6), ((4, 2),)),
        (arguments(2, 2) + arguments(2, 2, width=5), ((4, 2),)),
        (arguments(2), ()),
        ([((torch.tensor(1.0),), {})] * 8, ()),
        ([((torch.randn(2, 3), torch.randn(4, 3)), {})] * 8, ()),
        ([((), {"rows": torch.randn(2, 3), "name": name}) for name in "abcdefgh"], ()),
        ([((), {"rows": torch.randn(2, width)}) for width in range(1, 9)], ()),
    ],
)
def test_what_may_share_a_call(inputs: list[Any], sizes: tuple[tuple[int, int], ...]) -> None:
    assert possible_sizes(inputs) == sizes


def test_an_output_without_rows_is_refused() -> None:
    (call,) = calls_of(torch, arguments(2, 2), 2)
    with pytest.raises(ValueError, match="output has no row for each sample"):
        list(call.answers(torch.zeros(3)))
    with pytest.raises(ValueError, match=r"output\[0\] has no row"):
        list(call.answers([torch.tensor(1.0)]))


def test_a_launch_compares_the_outputs_of_each_input(launch: Launch) -> None:
    plain = launch("loaded", "many_rows", instruments=(CaptureOutputs(),))
    shared = launch("loaded", "many_rows", steps=4, plan=FOUR, instruments=(CaptureOutputs(),))
    assert isinstance(shared.ending, Stopped), shared.ending
    assert plain.facts.shared_calls == ((4, 3),) and shared.steps.samples == (32, 32, 16, 32)
    found = compared_outputs(outputs_of(plain.outputs_path), outputs_of(shared.outputs_path))
    assert not isinstance(found, str), found
    assert found[0].relative_error < 1e-5


def test_a_model_whose_outputs_have_no_rows_is_a_crash(launch: Launch) -> None:
    run = launch("counting", "many_rows", plan=FOUR)
    assert isinstance(run.ending, Crashed) and "has no row for each sample" in run.ending.error


def test_what_calibrated_an_engine_is_counted_by_inputs() -> None:
    hooks = Hooks(torch=torch)
    hooks.found["engine"] = EngineReport(engine="OpenVINO", calibrated_inputs=2)
    _count_calibrated_inputs(hooks, calls_of(torch, arguments(2, 2, 2, 2, 2, 2), 2))
    assert hooks.found["engine"].calibrated_inputs == 4


def situation(shared: tuple[tuple[int, int], ...], **facts: Any) -> Situation:
    made = msgspec.structs.replace(SITUATION.facts, lengths=None, shared_calls=shared, **facts)
    return msgspec.structs.replace(SITUATION, facts=made)


def test_when_it_is_tried() -> None:
    lever = find("batched-calls")
    possible = situation(((4, 8), (16, 2)))
    assert lever.obstacle(possible) is None
    assert [dict(it.values)["inputs"] for it in lever.candidates(possible)] == [4, 16]
    for other, reason in (
        (situation(()), "No two consecutive inputs"),
        (situation(((4, 8),), calls_in_script=True), "A script forms its own batches"),
        (SITUATION, "--lengths"),
    ):
        skipped = lever.obstacle(other)
        assert isinstance(skipped, Skipped) and reason in skipped.reason


@pytest.mark.parametrize(
    ("goal", "p99_seconds", "tried"),
    [("throughput", None, True), ("latency", None, False), ("throughput", 0.02, False), ("memory", None, False)],
)
def test_it_is_for_throughput_alone(goal: InferenceGoal, p99_seconds: float | None, tried: bool) -> None:
    options = Options(objective=for_inference(goal, p99_seconds=p99_seconds))
    found, passed_over = prospects_of([find("batched-calls")], situation(((4, 8),)), options)
    assert bool(found) == tried and bool(passed_over) != tried


# -- the search, on a model of arithmetic ------------------------------------------------------------------


class Sharing(FakeModel):
    """Its inputs may share calls, of which four then answer what sixteen do alone."""

    def _run(self, arm: Assignment, steps: int, seed: int) -> Run:
        run = super()._run(arm, steps, seed)
        return msgspec.structs.replace(run, facts=msgspec.structs.replace(run.facts, inputs=16, shared_calls=((4, 4),)))


def test_it_is_tried_on_top_of_the_best_engine_and_its_price_is_said(tmp_path: Path) -> None:
    factors = {"onnx-runtime": 3.0, "batched-calls": 1.5}
    executor = Sharing(folder=tmp_path, engines=True, factors=factors, errors={})
    study = infer(WORKLOAD, Options(only=tuple(factors)), executor)
    assert {it.lever for it in study.plan.settings} == {"onnx-runtime", "batched-calls"}
    assert study.verification is not None and study.verification.speed.speedup.value == pytest.approx(4.5, rel=0.1)
    shown = " ".join(markdown_report(study).split())
    assert "A call answers up to 4 inputs, and each waits for the others of its call" in shown


def test_outputs_are_compared_after_as_many_calls_as_answer_all_inputs() -> None:
    facts = msgspec.structs.replace(SITUATION.facts, lengths=None, inputs=16, shared_calls=((4, 4), (16, 1)))
    assert units_for_all_inputs(facts) == 16 and units_for_all_inputs(facts, FOUR) == 4
    sixteen = Plan(settings=(Setting(lever="batched-calls", values=(("inputs", 16),)),))
    assert units_for_all_inputs(facts, sixteen) == 3, "fewer calls show no precision"


@pytest.mark.slow
def test_a_form_with_shared_calls_is_deployed(target: Target, tmp_path: Path) -> None:
    workload = target("loaded", "many_rows")
    facts = ScriptFacts(inputs=10, shared_calls=((4, 3),))
    found = Study(workload=workload, kind="inference", plan=FOUR, baseline=Run(facts=facts))
    folder = tmp_path / "model"
    folder.mkdir()
    proof = write_artefact(found, workload, Options(rounds=3), LocalExecutor(tmp_path / "runs"), folder)
    assert proof.inputs == 3, "its inputs are the calls"
    assert proof.speed_of_files is not None, proof.speed_remark
    contract = json.loads((folder / "contract.json").read_text())
    assert contract["inputs"][0]["shape"] == [None, 16], "the last call has fewer rows"
