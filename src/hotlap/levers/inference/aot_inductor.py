"""The model compiled ahead of time by AOTInductor.

## What it does
Exports the model with `torch.export`, compiles it with Inductor into a package of machine code, with its weights as
constants (`freezing`), and calls that package: no Python and no guards run between kernels. `precision="int8"` first
quantizes weights and activations of linear layers and convolutions with torchao (PT2E, `X86InductorQuantizer`),
calibrated with the first half of the inputs (64 at most), which are then not used to judge quality.

## When it helps
Models of many small operators and small batches, where `torch.compile` spends time on guards and on Python between
kernels. A process that loads the package starts without compiling anything.

## What it costs
Compiling takes tens of seconds to minutes and a C++ compiler, and needs a model without control flow that depends on
data. The package runs only on the same kind of processor and with the same torch. Int8 may change a model's answers:
which ones is unknown until it is measured with the model's own weights.

## Before
    output = model(inputs)

## After
    program = torch.export.export(model, (inputs,))
    torch._inductor.aoti_compile_and_package(program, package_path="model.pt2", inductor_configs={"freezing": True})
    output = torch._inductor.aoti_load_package("model.pt2")(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32 for every input, at the requested level of quality.
The generated code must call at least one kernel, and for int8 at least one of integers.
"""

from __future__ import annotations

import functools
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import (
    NOT_IN_SOURCE,
    Calls,
    Engine,
    calibration_count,
    completed,
    take_over,
    without_single_calls,
)
from hotlap.levers.support.programs import PACKAGE, compile_package
from hotlap.levers.support.situations import device_kind, make_setting
from hotlap.records import EngineReport, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The model compiled ahead of time"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
replaces_torch = True
starts_slowly = True
parameters = {"precision": Parameter(str, choices=("int8",), required=False)}
_FROZEN = {"freezing": True}
_KERNEL = re.compile(r"\b(?:call_)?(?:cpp_\w+|triton_\w+|aoti_torch_(?:cpu|cuda|mkldnn|xpu)_\w+)\(")
"""A call of a generated kernel, or of one of torch's own, in the code that runs a package."""
_QUANTIZED = re.compile(r"_q(?:linear|conv)\w*\($")


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on a device that Inductor supports; `generate()` makes calls of changing shapes by itself."""
    if without_single_calls(situation):
        return without_single_calls(situation)
    if device_kind(situation) not in ("cpu", "cuda"):
        return Skipped(reason=f"AOTInductor has no mature backend for {situation.facts.device}.")
    return None


def bound(situation: Situation) -> float | None:
    """The share of Python in a call is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try int8 on CPUs with torchao and inputs to calibrate with, and always the model's own number format."""
    facts = situation.facts
    plain = make_setting("aot-inductor")
    enough = calibration_count(facts.inputs) > 0 and "torchao" in facts.packages and device_kind(situation) == "cpu"
    if enough and any(it.linears or it.convolutions for it in facts.models):
        return (make_setting("aot-inductor", precision="int8"), plain)
    return (plain,)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the package is what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, compile, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    precision = str(dict(setting.values).get("precision", ""))
    return Engine(
        name="AOTInductor",
        package="torch",
        build=_build_int8 if precision else functools.partial(compile_package, _FROZEN),
        loader="aot_inductor",
        inspect=_inspect,
        setting=setting,
        takes_numpy=False,
        precision=precision,
    )


def _build_int8(calls: Calls, folder: Path) -> int:
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    inputs = calls.calibration()
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config())
    with calls.torch.no_grad():
        prepared = prepare_pt2e(calls.exported().module(), quantizer)
        for one in inputs:
            prepared(*calls.named(*one).values())
        quantized = convert_pt2e(prepared)
    compile_package(_FROZEN, calls, folder, quantized)
    return len(inputs)


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    """Count the calls of kernels in the generated code that the package carries."""
    with zipfile.ZipFile(folder / PACKAGE) as package:
        sources = [it for it in package.namelist() if it.endswith(".cpp")]
        kernels = [found for it in sources for found in _KERNEL.findall(package.read(it).decode(errors="replace"))]
    quantized = sum(bool(_QUANTIZED.search(it)) for it in kernels)
    precision = ("int8" if quantized else "float32") if report.precision else ""
    return completed(report, precision=precision, quantized=quantized, operators=len(kernels))
