"""Run the model with OpenVINO.

## What it does
Converts the exported model with `openvino.convert_model` and compiles it for the CPU, for latency and with as many
threads as torch uses. The number format is set explicitly, since OpenVINO's default is bfloat16 if the CPU supports it.
`precision="int8"` quantizes weights and activations with NNCF, calibrated with the first half of the inputs (64 at
most), which are then not used to judge quality. `int8-dynamic` quantizes the weights beforehand, and OpenVINO quantizes
activations at each call.

## When it helps
CPUs: OpenVINO fuses whole blocks of a model, keeps weights in the layout of its kernels, and uses AVX512-VNNI, AMX and
bfloat16 if the CPU supports them.

## What it costs
Converting takes seconds, quantizing tens of seconds, and both need a model without control flow that depends on data.
bfloat16 keeps about three decimal digits, int8 fewer.

## Before
    output = model(inputs)

## After
    converted = openvino.convert_model(torch.export.export(model, (inputs,)))
    compiled = openvino.compile_model(converted, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    output = compiled([inputs.numpy()])[0]

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. The graph that
OpenVINO executes must compute in the requested number format.
"""

from __future__ import annotations

import functools
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import (
    FEWEST_CALIBRATION_INPUTS,
    NOT_IN_SOURCE,
    Calls,
    Engine,
    completed,
    obstacle_of,
    take_over,
)
from hotlap.levers.support.situations import make_setting, native_dtypes
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

title = "Run the model with OpenVINO"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
replaces_torch = True
parameters = {"precision": Parameter(str, choices=("float32", "bfloat16", "int8", "int8-dynamic"))}
_FILE = "model.xml"
_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "i8": "int8", "u8": "int8"}
_WORK = {"FullyConnected", "Convolution", "MatMul", "Deconvolution", "RNNSeq", "RNNCell", "LSTMSequence", "GRUSequence"}
"""The operators that take most of a model's time: their formats are the model's."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on a CPU, and OpenVINO."""
    return obstacle_of(situation, ("openvino",), "openvino")


def bound(situation: Situation) -> float | None:
    """The speed of another engine is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try bfloat16 if the CPU has it, and int8 with NNCF and inputs to calibrate with."""
    formats = ["float32"]
    if "bfloat16" in native_dtypes(situation):
        formats.insert(0, "bfloat16")
    if "nncf" in situation.facts.packages:
        enough = situation.facts.inputs // 2 >= FEWEST_CALIBRATION_INPUTS
        formats = [*(["int8"] if enough else []), "int8-dynamic", *formats]
    return tuple(make_setting("openvino", precision=it) for it in formats)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the engine's files are what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, convert, quantize, compile."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    precision = str(dict(setting.values)["precision"])
    return Engine(
        name="OpenVINO",
        package="openvino",
        build=functools.partial(_build, precision),
        loader="openvino_ir",
        inspect=_inspect,
        setting=setting,
        precision=precision,
        contract={"hint": "bf16" if precision == "bfloat16" else "f32"},
    )


def _build(precision: str, calls: Calls, folder: Path) -> int:
    import openvino

    model = openvino.convert_model(calls.exported())
    for ports, names in ((model.inputs, calls.dynamic), (model.outputs, calls.outputs)):
        for port, name in zip(ports, names, strict=True):
            port.get_tensor().set_names({name})
    calibrated = 0
    if precision.startswith("int8"):
        import nncf

        nncf.set_log_level(40)
        if precision == "int8-dynamic":
            model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
        else:
            inputs = calls.calibration()
            calibrated = len(inputs)
            rows = [[it.numpy() for it in calls.named(*one).values()] for one in inputs]
            kind = nncf.ModelType.TRANSFORMER if _is_transformer(calls) else None
            model = nncf.quantize(model, nncf.Dataset(rows), model_type=kind, subset_size=calibrated)
    openvino.save_model(model, folder / _FILE, compress_to_fp16=False)
    return calibrated


def _is_transformer(calls: Calls) -> bool:
    kinds = Counter(type(it).__name__ for it in calls.model.modules())
    return kinds["LayerNorm"] >= 2 and any("Attention" in it for it in kinds)


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    """Return each executed operator's format; the model's is that of most of its products."""
    import json

    import openvino

    hint = json.loads((folder / "contract.json").read_text())["hint"]
    model = openvino.Core().compile_model(folder / _FILE, "CPU", {"INFERENCE_PRECISION_HINT": hint})
    found = [_described(it) for it in model.get_runtime_model().get_ordered_ops()]
    products = Counter(precision for kind, precision in found if kind in _WORK)
    precision = products.most_common(1)[0][0] if products else report.precision
    quantized = sum(it == "int8" for kind, it in found if kind in _WORK)
    formats = (precision for kind, precision in found if precision in _NAMES.values())
    return completed(report, precision=precision, quantized=quantized, precisions=formats)


def _described(operator: object) -> tuple[str, str]:
    information = operator.get_rt_info()  # type: ignore[attr-defined]
    kind, precision = (str(information[key].astype(str)) for key in ("layerType", "runtimePrecision"))
    return kind, _NAMES.get(precision, precision)
