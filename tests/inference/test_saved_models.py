"""``hotlap infer`` of what lies on a disk: the folder of a transformers model, and a program of torch.export."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
import pytest
import torch
from inference import models
from inference.conftest import Target
from inference.test_inference_levers import SITUATION

from hotlap.api import inference_workload
from hotlap.errors import UsageError
from hotlap.levers.api import find
from hotlap.levers.support.situations import PROGRAM
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.records import Assignment, CaptureOutputs, Crashed, LaunchRequest, ModelFacts, Plan, Run, Setting, Stopped
from hotlap.runtime.saved_models import model_from
from hotlap.trial.local import LocalExecutor

UNMODIFIED = Plan()


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The model ``loaded`` of ``models.py``, for any number of rows."""
    path = tmp_path / "model.pt2"
    sizes = ({0: torch.export.Dim.DYNAMIC},)
    torch.export.save(torch.export.export(models.loaded(), (models.rows()[0],), dynamic_shapes=sizes), path)
    return path


def launched(target: Target, path: str, inputs: str, plan: Plan = UNMODIFIED) -> Run:
    workload = msgspec.structs.replace(target("unused", inputs), target=path)
    assignment = Assignment(workload=workload, step_source="call", plan=plan, instruments=(CaptureOutputs(),))
    return LocalExecutor(Path(workload.directory) / "runs").launch(LaunchRequest(assignment=assignment, steps=5))


def test_a_saved_program_is_a_model(target: Target, program: Path) -> None:
    run = launched(target, "model.pt2", "rows_of_all_lengths")
    assert isinstance(run.ending, Stopped), run.ending
    (found,) = run.facts.models
    assert (found.kind, found.linears) == (PROGRAM, 2) and not found.trains
    assert len(outputs_of(run.outputs_path)) == 4, "three inputs and the weights"


@pytest.mark.slow
def test_sizes_that_it_was_not_exported_for_are_the_reason(target: Target, tmp_path: Path) -> None:
    torch.export.save(torch.export.export(models.loaded(), (models.rows()[0],)), tmp_path / "fixed.pt2")
    run = launched(target, "fixed.pt2", "rows_of_all_lengths")
    assert isinstance(run.ending, Crashed) and "size" in run.ending.error


@pytest.mark.slow
def test_it_returns_what_the_model_returned(target: Target, program: Path) -> None:
    runs = [launched(target, it, "known_rows") for it in ("models:loaded", "model.pt2")]
    compared = compared_outputs(*(outputs_of(it.outputs_path) for it in runs))
    assert not isinstance(compared, str) and compared[0].worst_relative_error < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "setting",
    [
        Setting(lever="compile", values=(("dynamic", True), ("mode", "default"))),
        Setting(lever="half-weights", values=(("dtype", "bfloat16"),)),
        Setting(lever="torchscript"),
        Setting(lever="aot-inductor"),
    ],
    ids=lambda it: it.lever,
)
def test_levers_apply_to_it(target: Target, program: Path, setting: Setting) -> None:
    plain = launched(target, "model.pt2", "rows_of_all_lengths")
    run = launched(target, "model.pt2", "rows_of_all_lengths", Plan(settings=(setting,)))
    assert isinstance(run.ending, Stopped), run.ending
    compared = compared_outputs(outputs_of(plain.outputs_path), outputs_of(run.outputs_path))
    assert not isinstance(compared, str) and compared[0].worst_relative_error < 0.05


def test_levers_that_replace_layers_do_not() -> None:
    program = ModelFacts(kind=PROGRAM, parameters=10, linears=2)
    packages = ("torchao",)
    facts = msgspec.structs.replace(SITUATION.facts, models=(program,), packages=packages, lengths=None)
    for lever in ("torchao-int8", "int8-weights"):
        skipped = find(lever).obstacle(msgspec.structs.replace(SITUATION, facts=facts))
        assert skipped is not None and "no layers to replace" in skipped.reason


@pytest.mark.slow
def test_the_folder_of_a_transformers_model_is_one(target: Target, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    transformers.BertModel(config).save_pretrained(tmp_path / "encoder")
    run = launched(target, "encoder", "token_rows")
    assert isinstance(run.ending, Stopped), run.ending
    (found,) = run.facts.models
    assert found.kind == "BertModel" and found.transformers_model and not found.trains


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"architectures": ["Magic"]}, "no class of transformers"),
        ({"architectures": ["BertModel"], "auto_map": {"AutoModel": "own.Model"}}, "does not name one class"),
        ({}, "does not name one class"),
    ],
)
def test_a_folder_that_needs_its_own_code_is_refused(tmp_path: Path, config: dict[str, object], said: str) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=said):
        model_from(torch, str(tmp_path))


def test_what_is_named_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for name, said in (("empty", "without a config.json"), ("gone.pt2", "no saved model"), ("serve", "no function")):
        with pytest.raises(UsageError, match=said):
            inference_workload(name, "serve:make_inputs")
    (tmp_path / "here.pt2").touch()
    found = inference_workload("here.pt2", "serve:make_inputs")
    assert (found.target, found.directory, found.python) == ("here.pt2", str(tmp_path), sys.executable)
