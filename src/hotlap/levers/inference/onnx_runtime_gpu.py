"""Run the model with ONNX Runtime on an NVIDIA GPU.

## What it does
Exports the model to ONNX and calls it through an `InferenceSession` whose inputs and outputs stay on the GPU
(`IOBinding`). `provider="cuda"` runs ONNX Runtime's own kernels, `provider="tensorrt"` has TensorRT compile what it
supports, and leaves the rest to these kernels. `precision="float16"` converts the graph, and keeps inputs and outputs
in their format.

## When it helps
Models of many operators and small batches, which wait for Python and for launching kernels. TensorRT chooses kernels by
timing them, and fuses most. float16 runs on tensor cores.

## What it costs
Exporting takes seconds and TensorRT's compiling minutes, for each shape of the inputs; its engines are stored with the
model, and fit this kind of GPU only. It needs a model without control flow that depends on data. float16 keeps about
three decimal digits, and overflows above 65504.

## Before
    output = model(inputs)

## After
    torch.onnx.export(model, (inputs,), "model.onnx", dynamo=True)
    session = onnxruntime.InferenceSession("model.onnx", providers=["CUDAExecutionProvider"])
    binding = session.io_binding()
    binding.bind_input("inputs", "cuda", 0, numpy.float32, inputs.shape, inputs.data_ptr())
    binding.bind_output("output", "cuda")
    session.run_with_iobinding(binding)

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. The provider
must have taken operators of the graph: ONNX Runtime silently runs on the CPU what its GPU providers lack. TensorRT does
not report the format of its kernels, so that `precision` is what was requested of it.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import (
    NOT_IN_SOURCE,
    Calls,
    Engine,
    completed,
    contract_of,
    gpu_obstacle_of,
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

title = "Run the model with ONNX Runtime on a GPU"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
replaces_torch = True
parameters = {
    "provider": Parameter(str, choices=("cuda", "tensorrt")),
    "precision": Parameter(str, choices=("float32", "float16")),
}
PACKAGES = ("onnx", "onnxscript", "onnxruntime-gpu")
_CUDA, _TENSORRT = "CUDAExecutionProvider", "TensorrtExecutionProvider"


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on an NVIDIA GPU, and the packages that export and run it."""
    return gpu_obstacle_of(situation, PACKAGES, "onnx-gpu")


def bound(situation: Situation) -> float | None:
    """The speed of another engine is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try half precision first, and TensorRT if it is installed."""
    providers = (["tensorrt"] if "tensorrt" in situation.facts.packages else []) + ["cuda"]
    return tuple(
        make_setting("onnx-runtime-gpu", provider=provider, precision=precision)
        for precision in ("float16", "float32")
        for provider in providers
    )


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the engine's files are what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, convert, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    values = dict(setting.values)
    is_tensorrt, half = values["provider"] == "tensorrt", values["precision"] == "float16"
    providers = [[_TENSORRT, _tensorrt_options(half=half)], [_CUDA, {}]] if is_tensorrt else [[_CUDA, {}]]
    return Engine(
        name="ONNX Runtime",
        package="onnxruntime-gpu",
        build=functools.partial(build, half and not is_tensorrt),
        loader="onnx_runtime_gpu",
        inspect=inspect,
        setting=setting,
        takes_numpy=False,
        precision=str(values["precision"]),
        contract={"providers": providers, "runs_on": "cuda"},
    )


def _tensorrt_options(*, half: bool) -> dict[str, str]:
    """Engines are stored with the model: compiling them again would take minutes at every start."""
    cache = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": "engines", "trt_timing_cache_enable": "1"}
    return {**cache, "trt_timing_cache_path": "engines", **({"trt_fp16_enable": "1"} if half else {})}


def build(convert: bool, calls: Calls, folder: Path) -> int:
    """Write the graph, with ``convert`` in float16, and have a provider that compiles store what it compiled."""
    import onnx

    path = export(calls, folder)
    if convert:
        from onnxruntime.transformers.float16 import convert_float_to_float16

        model = convert_float_to_float16(onnx.load(path), keep_io_types=True)
        path.with_name(f"{MODEL_FILE}.data").unlink(missing_ok=True)
        onnx.save(model, path)
    if any("engine_cache_path" in key for _, values in contract_of(folder)["providers"] for key in values):
        from hotlap.levers.support.loaders import onnx_runtime_gpu

        onnx_runtime_gpu.load(folder)(**calls.named(*calls.inputs[calls.example]))
    return 0


def inspect(report: EngineReport, folder: Path) -> EngineReport:
    """Count the operators that the first provider took. A graph in float16 has weights in it."""
    providers: list[Any] = contract_of(folder)["providers"]
    names = [name for name, _ in providers]
    taken = executed(folder, names, fused=False).providers
    found = completed(report, precision=_precision(report, folder), quantized=0, providers=taken)
    return msgspec.structs.replace(found, operators=taken.count(names[0]))


def _precision(report: EngineReport, folder: Path) -> str:
    import onnx

    if contract_of(folder)["providers"][0][0] == _TENSORRT:
        return report.precision
    kinds = {it.data_type for it in onnx.load(folder / MODEL_FILE, load_external_data=False).graph.initializer}
    return "float16" if onnx.TensorProto.FLOAT16 in kinds else "float32"
