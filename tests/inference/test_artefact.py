"""``hotlap export artefact``: a model as files that run without hotlap, and every way in which that can fail."""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from inference.conftest import Target
from inference.test_infer import FakeModel
from json_documents import assert_valid

from hotlap import api
from hotlap.cli.main import main
from hotlap.errors import ArtefactError, StudyError
from hotlap.experiment.options import Options
from hotlap.procedures.artefact import write_artefact
from hotlap.records import (
    ArtefactProof,
    CaptureOutputs,
    Crashed,
    LaunchRequest,
    Plan,
    Run,
    ScriptFacts,
    Setting,
    Study,
    WriteArtefact,
)
from hotlap.trial.local import LocalExecutor

CANNOT_LINK = pytest.mark.skipif(" " in torch.__path__[0], reason="no linker takes torch's path, which has a space")

# -- real models, written and loaded ----------------------------------------------------------------


def setting(lever: str, **values: Any) -> Setting:
    return Setting(lever=lever, values=tuple(sorted(values.items())))


def form(*settings: Setting, needs: tuple[str, ...] = (), marks: tuple[Any, ...] = ()) -> Any:
    missing = [it for it in needs if importlib.util.find_spec(it) is None]
    skipped = [pytest.mark.skip(reason=f"{' and '.join(missing)} not installed")] if missing else []
    return pytest.param(settings, marks=[*skipped, *marks], id="-".join(it.lever for it in settings))


def study_of(workload: Any, settings: tuple[Setting, ...], inputs: int) -> Study:
    baseline = Run(facts=ScriptFacts(inputs=inputs))
    return Study(workload=workload, kind="inference", plan=Plan(settings=settings), baseline=baseline)


def write(target: Target, folder: Path, model: str, inputs: str, count: int, *settings: Setting) -> ArtefactProof:
    workload = target(model, inputs)
    executor = LocalExecutor(folder / "runs")
    found = study_of(workload, settings, count)
    return write_artefact(found, workload, Options(), executor, folder / "model", timed=False)


def contract(folder: Path) -> Any:
    return json.loads((folder / "contract.json").read_text())


def loaded(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


def test_a_model_of_torch_becomes_a_program_that_anyone_can_load(target: Target, tmp_path: Path) -> None:
    """Its outputs are nested, one argument is no tensor, and the inputs differ in their first dimension."""
    proof = write(target, tmp_path, "nested", "rows_of_all_lengths", 3, setting("inference-mode"))
    folder = tmp_path / "model"
    assert {it.name for it in folder.iterdir()} == {"contract.json", "load.py", "model.pt2", "requirements.txt"}
    assert "hotlap" not in (folder / "load.py").read_text()
    assert (folder / "requirements.txt").read_text().startswith(f"torch=={torch.__version__.partition('+')[0]}")
    found = contract(folder)
    assert found["inputs"] == [{"name": "rows", "dtype": "float32", "shape": [None, 16]}]
    assert [it["name"] for it in found["outputs"]] == ["output_logits", "output_hidden_all_0", "output_hidden_all_1"]
    assert (found["arrays"], found["threads"], found["device"]) == ("torch", 0, "cpu")
    assert proof.inputs == 3 and proof.load_seconds > 0 and proof.size_bytes > 0
    assert proof.resting_bytes > 10 * 2**20, "an interpreter with torch holds more"
    assert [it.worst_relative_error for it in proof.outputs] == [0.0, 0.0, 0.0]
    rows = torch.randn(11, 16)  # a length that no input had
    outputs = loaded(folder)(rows=rows)
    assert outputs["output_logits"].shape == (11, 4)
    assert torch.equal(outputs["output_hidden_all_1"], rows + 1)


@pytest.mark.slow
def test_what_levers_do_to_model_and_inputs_is_in_the_program(target: Target, tmp_path: Path) -> None:
    settings = setting("half-weights", dtype="bfloat16"), setting("cpu-threads", threads=1)
    proof = write(target, tmp_path, "loaded", "rows", 5, *settings)
    assert all(it.finite and it.worst_relative_error <= proof.error_limit for it in proof.outputs)
    found = contract(tmp_path / "model")
    assert (found["inputs"][0]["dtype"], found["outputs"][0]["dtype"]) == ("float32", "bfloat16")
    assert found["threads"] == 1
    assert loaded_dtypes(tmp_path / "model") == {"bfloat16"}


def loaded_dtypes(folder: Path) -> set[str]:
    program = torch.export.load(folder / "model.pt2")
    return {str(it.dtype).removeprefix("torch.") for it in program.state_dict.values()}


@pytest.mark.parametrize(
    "settings",
    [
        form(setting("torchscript")),
        form(setting("mixed-precision", dtype="bfloat16"), marks=(pytest.mark.slow,)),
        form(setting("channels-last"), marks=(pytest.mark.slow,)),
        form(
            setting("inference-mode"),
            setting("compile", mode="default", freezing=True),
            marks=(pytest.mark.slow, CANNOT_LINK),
        ),
        form(setting("onnx-runtime", precision="float32"), needs=("onnx", "onnxscript", "onnxruntime")),
        form(setting("openvino", precision="float32"), needs=("openvino",)),
        form(setting("openvino", precision="int8-dynamic"), needs=("openvino", "nncf"), marks=(pytest.mark.slow,)),
        form(setting("torchao-int8"), needs=("torchao",), marks=(pytest.mark.slow, CANNOT_LINK)),
    ],
)
def test_each_form_returns_the_same_when_loaded_alone(
    target: Target, tmp_path: Path, settings: tuple[Setting, ...]
) -> None:
    images = settings[0].lever == "channels-last"
    names = ("images", "image_inputs", 3) if images else ("loaded", "rows", 5)
    proof = write(target, tmp_path, *names, *settings)
    assert proof.inputs == names[2]
    assert all(it.finite and it.worst_relative_error <= proof.error_limit for it in proof.outputs)
    expected = {"onnx-runtime": "ONNX Runtime", "openvino": "OpenVINO", "torchscript": "TorchScript"}
    assert proof.form == expected.get(settings[0].lever, "torchao" if settings[0].lever == "torchao-int8" else "torch")


def test_a_model_that_cannot_be_exported_says_why(target: Target, tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="cannot be written with inference-mode") as raised:
        write(target, tmp_path, "branching", "rows", 5, setting("inference-mode"))
    assert "hotlap infer --skip inference-mode" in raised.value.remedy
    assert not (tmp_path / "model").exists()


def test_only_an_inference_study_with_a_plan_has_a_form(target: Target, tmp_path: Path) -> None:
    workload = target("mlp")
    script = msgspec.structs.replace(workload, kind="script", target="train.py")
    for found, said in (
        (study_of(workload, (), 5), "kept no lever"),
        (Study(workload=script, plan=Plan(settings=(setting("compile", mode="default"),))), "not one of inference"),
    ):
        with pytest.raises(StudyError, match=said):
            write_artefact(found, workload, Options(), LocalExecutor(tmp_path), tmp_path / "model")


# -- the command, on a model of arithmetic -----------------------------------------------------------

LOADER = """
import json, pathlib
import numpy

def load(folder=pathlib.Path(__file__).parent, threads=0):
    {at_load}
    return lambda rows: {{"output": rows {change}}}
"""


@dataclass
class FakeDeployment(FakeModel):
    """The deployed model returns its input, which is what the plan returned, ``change`` aside."""

    change: str = ""
    at_load: str = "pass"
    fails: str = ""

    def launch(self, request: LaunchRequest) -> Run:
        run = super().launch(request)
        if request.assignment.instrument(WriteArtefact) is None:
            return run
        if self.fails:
            return msgspec.structs.replace(run, ending=Crashed(exit_code=1, error=self.fails))
        assert request.assignment.instrument(CaptureOutputs) is not None
        place = Path(tempfile.mkdtemp(dir=self.folder))
        (place / "artefact").mkdir()
        found = {"inputs": [{"name": "rows", "dtype": "float32"}], "arrays": "numpy", "device": "cpu", "threads": 0}
        (place / "artefact" / "contract.json").write_text(json.dumps(found))
        (place / "artefact" / "load.py").write_text(LOADER.format(at_load=self.at_load, change=self.change))
        with np.load(run.outputs_path) as kept:
            np.savez(place / "inputs.npz", **{"0/rows": kept["0/output"]})
        return msgspec.structs.replace(run, artefact_path=str(place / "artefact"))


def export(folder: Path, *words: str, **fields: Any) -> int:
    engine = api.Engine(executor=lambda directory, isolation: FakeDeployment(folder=folder, **fields))
    return main(["export", "artefact", *words], engine=engine)


@pytest.fixture
def studied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    engine = api.Engine(executor=lambda directory, isolation: FakeModel(folder=tmp_path))
    assert main(["infer", "--quiet", "serve:make_model", "--inputs", "serve:make_inputs"], engine=engine) == 0
    capsys.readouterr()
    return tmp_path


def test_the_command_writes_the_folder_and_its_proof(studied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(studied, "--to", "model") == 0
    shown = capsys.readouterr().out
    assert "Wrote model: half-weights (dtype bfloat16) and inference-mode, " in shown
    assert "return what the study's form returned, to the last bit." in shown
    assert "compared with the study's form." in shown and "outputs keep a quality of 0.99 on 1 input" in shown
    proof = msgspec.json.decode((studied / "model" / "proof.json").read_bytes(), type=ArtefactProof)
    assert proof.target == "serve:make_model" and {it.lever for it in proof.plan.settings} == {
        "half-weights",
        "inference-mode",
    }
    assert proof.speed is not None and proof.speed.speedup.low > 1.5
    assert proof.quality is not None and proof.quality.verdict == "within"
    assert proof.speed_of_files is not None and proof.call_seconds > 0
    assert not list(studied.glob(".model*")), "nothing half-written is left"


def test_json_is_the_proof(studied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(studied, "--to", "model", "--untimed", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert_valid(found)
    assert found["speed_of_files"] is None and found["inputs"] == 1


def test_a_folder_is_replaced_only_if_it_is_ours_and_forced(studied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(studied, "--to", "model", "--untimed") == 0
    (studied / "model" / "stale").write_text("of the earlier one")
    assert export(studied, "--to", "model", "--untimed") == 2
    assert "already contains a model" in capsys.readouterr().err
    assert export(studied, "--to", "model", "--untimed", "--force") == 0
    assert not (studied / "model" / "stale").exists()
    (studied / "thesis").mkdir()
    (studied / "thesis" / "chapter.tex").write_text("years of work")
    (studied / "file").write_text("")
    for name, said in (("thesis", "contains other files"), ("file", "is not a folder")):
        assert export(studied, "--to", name, "--untimed", "--force") == 2
        assert said in capsys.readouterr().err
    assert (studied / "thesis" / "chapter.tex").read_text() == "years of work"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"change": "* 1.01"}, "differs by a relative error of 0.01"),
        ({"change": "* numpy.float32('nan')"}, "holds NaN or infinity"),
        ({"change": "[:, :2]"}, "different shapes"),
        ({"at_load": "import hotlap"}, "import of hotlap halted"),
        ({"at_load": "import os; os.abort()"}, "does not run in a fresh process without hotlap"),
        ({"at_load": "import time; time.sleep(600)"}, "did not answer within 3 seconds"),
        ({"fails": "UserError: Could not guard on data-dependent expression"}, "Could not guard on data-dependent"),
    ],
    ids=["other", "nan", "shape", "hotlap", "abort", "hang", "export"],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    studied: Path, capsys: pytest.CaptureFixture[str], fields: dict[str, str], said: str
) -> None:
    assert export(studied, "--to", "model", "--untimed", "--startup-limit", "3s", **fields) == 1
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (studied / "model").exists() and not list(studied.glob(".model*"))


def test_python_of_the_study_is_used(studied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert export(studied, "--untimed", at_load="import sys; print(sys.executable); raise SystemExit(1)") == 1
    assert sys.executable in capsys.readouterr().err
