"""Run the model with ONNX Runtime.

## What it does
Exports the model to ONNX with `torch.onnx.export(..., dynamo=True)` and calls it through an `InferenceSession` with as
many threads as torch uses. `precision="int8"` first quantizes the weights of matrix products, per channel with
`per_channel`, and has activations quantized at each call (`quantize_dynamic`). `int8-static` quantizes convolutions
too, and activations with scales that are calibrated with the first half of the inputs (64 at most; `quantize_static`),
which are then not used to judge quality.

## When it helps
Models of many operators on CPUs: ONNX Runtime fuses attention, layer normalization and GELU, and runs no Python between
operators. Int8 helps models that consist of large matrix products, `int8-static` those of convolutions.

## What it costs
Exporting takes seconds, and needs a model without control flow that depends on data. Dynamic int8 may change a model's
answers: which ones is unknown until it is measured with the model's own weights.

## Before
    output = model(inputs)

## After
    torch.onnx.export(model, (inputs,), "model.onnx", dynamo=True)
    session = onnxruntime.InferenceSession("model.onnx")
    output = session.run(None, {"inputs": inputs.numpy()})

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. The graph that
ONNX Runtime executes must contain quantized operators if int8 was requested.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import (
    NOT_IN_SOURCE,
    Calls,
    Engine,
    calibration_count,
    completed,
    obstacle_of,
    take_over,
)
from hotlap.levers.support.onnx_graphs import MODEL_FILE, executed, export
from hotlap.levers.support.situations import make_setting
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    EngineReport,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Run the model with ONNX Runtime"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
replaces_torch = True
parameters = {
    "precision": Parameter(str, choices=("float32", "int8", "int8-static")),
    "per_channel": Parameter(bool, required=False),
}
PACKAGES = ("onnx", "onnxscript", "onnxruntime")
_QUANTIZED = (
    "QLinear",
    "MatMulInteger",
    "ConvInteger",
    "DynamicQuantizeMatMul",
    "DynamicQuantizeLSTM",
    "QGemm",
    "QMoE",
)


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on a CPU, and the packages that export and run it."""
    return obstacle_of(situation, PACKAGES, "onnx")


def bound(situation: Situation) -> float | None:
    """The speed of another engine is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try static int8 if there are convolutions, dynamic int8 if there are matrix products, and always float32."""
    exact = make_setting("onnx-runtime", precision="float32")
    if any(it.convolutions for it in situation.facts.models) and calibration_count(situation.facts.inputs):
        return (_STATIC, exact)
    if not any(it.linears or it.recurrent or it.transformers_model for it in situation.facts.models):
        return (exact,)
    return (make_setting("onnx-runtime", precision="int8", per_channel=True), _INT8, exact)


_INT8 = make_setting("onnx-runtime", precision="int8", per_channel=False)
_STATIC = make_setting("onnx-runtime", precision="int8-static", per_channel=True)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the engine's files are what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, quantize, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    values = dict(setting.values)
    return Engine(
        name="ONNX Runtime",
        package="onnxruntime",
        build=functools.partial(_build, str(values["precision"]), bool(values.get("per_channel"))),
        loader="onnx_runtime",
        inspect=_inspect,
        setting=setting,
        precision=str(values["precision"]),
    )


def _build(precision: str, per_channel: bool, calls: Calls, folder: Path) -> int:
    import onnx

    path = export(calls, folder)
    if precision == "int8":
        from onnxruntime.quantization import QuantType, quantize_dynamic

        model = onnx.load(path)
        # Shapes that were inferred before contradict the quantized graph's (onnxruntime 1.31: ShapeInferenceError).
        del model.graph.value_info[:]
        quantize_dynamic(model, path, weight_type=QuantType.QInt8, per_channel=per_channel)
        path.with_name(f"{MODEL_FILE}.data").unlink(missing_ok=True)
    return _quantize_static(per_channel, calls, path) if precision == "int8-static" else 0


def _quantize_static(per_channel: bool, calls: Calls, path: Path) -> int:
    """Quantize weights and activations; how many inputs calibrated the latter."""
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    base: Any = CalibrationDataReader

    class Inputs(base):  # type: ignore[misc]
        def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
            self._rows = iter(rows)

        def get_next(self) -> Mapping[str, Any] | None:
            return next(self._rows, None)

    inputs = calls.calibration()
    rows = ({name: it.numpy() for name, it in calls.named(*one).items()} for one in inputs)
    quantize_static(
        path,
        path,
        Inputs(rows),
        per_channel=per_channel,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
    )
    path.with_name(f"{MODEL_FILE}.data").unlink(missing_ok=True)
    return len(inputs)


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    found = executed(folder, ["CPUExecutionProvider"])
    quantized = sum(it.startswith(_QUANTIZED) for it in found.kinds)
    precision = "int8" if quantized else "float32"
    return completed(report, precision=precision, quantized=quantized, providers=found.providers)
