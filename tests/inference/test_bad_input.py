"""Models and inputs that something cannot take: an outcome with its reason, and the next candidate is tried.

Engines that hang, segfault or need too much memory are in ``test_faults.py``, metrics in ``test_metric.py``.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from inference.conftest import Launch, Target
from inference.test_infer import verdict

from hotlap.errors import ArtefactError
from hotlap.experiment.options import Options
from hotlap.measure.quality import outputs_of
from hotlap.procedures.artefact import write_artefact
from hotlap.procedures.infer import infer
from hotlap.records import (
    CaptureOutputs,
    Crashed,
    Failed,
    Kept,
    NoGain,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Stopped,
    Study,
)
from hotlap.trial.local import LocalExecutor

PACKAGE = Plan(settings=(Setting(lever="aot-inductor"),))
SCRIPT = Plan(settings=(Setting(lever="torchscript"),))
ONNX = Plan(settings=(Setting(lever="onnx-runtime", values=(("precision", "float32"),)),))
NEEDS_ONNX = pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is None, reason='not installed: pip install "hotlap[onnx]"'
)


@pytest.mark.parametrize(
    ("model", "inputs", "plan", "said"),
    [
        ("branching", "rows", PACKAGE, ("control flow depends on the data", "models.py, line", "in forward")),
        pytest.param(
            "nested",
            "inputs_of_different_structure",
            PACKAGE,
            ("Input 1 differs from input 0 in a value that is not a tensor.",),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "with_custom_operator",
            "rows",
            ONNX,
            ("cannot be written as ONNX", "No ONNX function found", "hotlap_tests.scaled"),
            marks=[pytest.mark.slow, NEEDS_ONNX],
        ),
    ],
    ids=["control flow", "structure", "custom operator"],
)
def test_what_an_engine_cannot_take_is_said(
    launch: Launch, model: str, inputs: str, plan: Plan, said: tuple[str, ...]
) -> None:
    run = launch(model, inputs, plan=plan)
    assert isinstance(run.ending, Crashed), run.ending
    assert all(it in run.ending.error for it in said), run.ending.error


@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        ("mlp", "few_rows"),
        ("nested", "inputs_of_different_structure"),
        pytest.param("with_custom_operator", "rows", marks=pytest.mark.slow),
    ],
)
def test_torch_itself_takes_them(launch: Launch, model: str, inputs: str) -> None:
    run = launch(model, inputs, steps=8, plan=Plan(settings=(Setting(lever="inference-mode"),)))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(run.steps.wall_seconds) == 8, "the inputs are used again"


def test_a_generator_that_fails_is_the_reason(launch: Launch) -> None:
    run = launch("mlp", "breaking_rows")
    assert isinstance(run.ending, Crashed) and run.ending.error == "OSError: the third file is gone"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [PACKAGE, SCRIPT], ids=["aot-inductor", "torchscript"])
def test_a_custom_operator_is_called_by_engines_of_torch(launch: Launch, plan: Plan) -> None:
    plain = launch("with_custom_operator", instruments=(CaptureOutputs(),))
    run = launch("with_custom_operator", plan=plan, instruments=(CaptureOutputs(),))
    assert isinstance(run.ending, Stopped), run.ending
    assert len(outputs_of(run.outputs_path)) == len(outputs_of(plain.outputs_path))


@pytest.mark.slow
def test_files_that_need_a_custom_operator_are_not_deployed(target: Target, tmp_path: Path) -> None:
    """A fresh process without the user's module lacks it."""
    workload = target("with_custom_operator")
    found = Study(workload=workload, kind="inference", plan=SCRIPT, baseline=Run(facts=ScriptFacts(inputs=5)))
    with pytest.raises(ArtefactError, match="does not run in a fresh process without hotlap") as raised:
        write_artefact(found, workload, Options(), LocalExecutor(tmp_path / "runs"), tmp_path / "model", timed=False)
    assert "scaled" in raised.value.what + raised.value.remedy


@pytest.mark.slow
def test_the_search_goes_on_after_a_model_that_no_engine_takes(target: Target, tmp_path: Path) -> None:
    options = Options(only=("aot-inductor", "inference-mode"), rounds=4, delta=0.5)
    study = infer(target("branching"), options, LocalExecutor(tmp_path / "runs"))
    assert study.status == "finished"
    failed = verdict(study, "aot-inductor")
    assert isinstance(failed, Failed) and "control flow depends on the data" in failed.reason
    assert isinstance(verdict(study, "inference-mode"), (Kept, NoGain))
