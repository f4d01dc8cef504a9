"""Run the model with TensorRT, by Torch-TensorRT.

## What it does
Exports the model with `torch.export` and has `torch_tensorrt.dynamo.compile` turn what TensorRT supports into engines;
the rest stays torch's. Sizes that differ between the inputs stay open, from the smallest to the largest that occurs.
`precision="float16"` or `"bfloat16"` lets it choose these formats where they are safe (its autocast).

## When it helps
NVIDIA GPUs: TensorRT chooses kernels by timing them on the device, fuses most operators, and runs no Python between
them.

## What it costs
Compiling takes minutes. The engines fit this kind of GPU and this version only, and inputs larger than those seen are
refused. It needs a model without control flow that depends on data.

## Before
    output = model(inputs)

## After
    program = torch.export.export(model, (inputs,))
    compiled = torch_tensorrt.dynamo.compile(program, arg_inputs=[inputs])
    output = compiled(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. The compiled
program must contain at least one engine. TensorRT does not report the format of its kernels, so that `precision` is
what was requested of it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import NOT_IN_SOURCE, Calls, Engine, completed, gpu_obstacle_of, take_over
from hotlap.levers.support.situations import make_setting, native_dtypes
from hotlap.records import EngineReport, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Run the model with TensorRT"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
replaces_torch = True
starts_slowly = True
parameters = {"precision": Parameter(str, choices=("float32", "float16", "bfloat16"))}
_FILE = "model.pt2"
_ENGINE = "tensorrt.execute_engine"
"""The beginning of the names of the operators that run an engine."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on an NVIDIA GPU, and Torch-TensorRT."""
    return gpu_obstacle_of(situation, ("torch_tensorrt",), "tensorrt")


def bound(situation: Situation) -> float | None:
    """The speed of another engine is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """16-bit formats first, where the device multiplies them."""
    native = native_dtypes(situation)
    formats = [it for it in ("float16", "bfloat16") if it in native]
    return tuple(make_setting("tensorrt", precision=it) for it in (*formats, "float32"))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the engine's files are what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, compile, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    precision = str(dict(setting.values)["precision"])
    return Engine(
        name="TensorRT",
        package="torch-tensorrt",
        build=functools.partial(_build, precision),
        loader="tensorrt",
        inspect=_inspect,
        setting=setting,
        takes_numpy=False,
        precision=precision,
    )


def _build(precision: str, calls: Calls, folder: Path) -> int:
    import torch_tensorrt

    inputs = _ranges(torch_tensorrt, calls)
    low = {} if precision == "float32" else {"autocast_low_precision_type": getattr(calls.torch, precision)}
    compiled = torch_tensorrt.dynamo.compile(
        calls.exported(), arg_inputs=inputs, enable_autocast=bool(low), truncate_double=True, **low
    )
    example = inputs if any(calls.dynamic.values()) else list(calls.example_tensors())
    torch_tensorrt.save(compiled, str(folder / _FILE), arg_inputs=example)
    return 0


def _ranges(torch_tensorrt: Any, calls: Calls) -> list[Any]:
    """The smallest and the largest shape of each input that occurs; the engine is tuned for that of the example."""
    rows = [calls.named(*it) for it in calls.inputs]
    found = []
    for name, example in rows[calls.example].items():
        shapes = [tuple(row[name].shape) for row in rows]
        best = tuple(example.shape)
        ends = {"min_shape": _each(min, shapes), "opt_shape": best, "max_shape": _each(max, shapes)}
        shape = ends if calls.dynamic[name] else {"shape": best}
        found.append(torch_tensorrt.Input(**shape, dtype=example.dtype, name=name))
    return found


def _each(choose: Any, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(choose(sizes) for sizes in zip(*shapes, strict=True))


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    """Count the engines of the program, and the operators that stayed torch's."""
    import torch
    import torch_tensorrt  # noqa: F401  # it registers the operator that runs an engine

    nodes = torch.export.load(folder / _FILE).graph.nodes
    names = [str(it.target) for it in nodes if it.op == "call_function" and "getitem" not in str(it.target)]
    engines = sum(it.startswith(_ENGINE) for it in names)
    providers = ["TensorRT"] * engines + ["torch"] * (len(names) - engines)
    found = completed(report, precision=report.precision, quantized=0, providers=providers)
    return msgspec.structs.replace(found, operators=engines)
