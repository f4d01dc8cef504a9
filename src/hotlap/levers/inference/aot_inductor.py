"""The model compiled ahead of time by AOTInductor.

## What it does
Exports the model with `torch.export`, compiles it with Inductor into a package of machine code, with its weights as
constants (`freezing`), and calls that package: no Python and no guards run between kernels.

## When it helps
Models of many small operators and small batches, where `torch.compile` spends time on guards and on Python between
kernels. A process that loads the package starts without compiling anything.

## What it costs
Compiling takes tens of seconds to minutes and a C++ compiler, and needs a model without control flow that depends on
data. The package runs only on the same kind of processor and with the same torch.

## Before
    output = model(inputs)

## After
    program = torch.export.export(model, (inputs,))
    torch._inductor.aoti_compile_and_package(program, package_path="model.pt2", inductor_configs={"freezing": True})
    output = torch._inductor.aoti_load_package("model.pt2")(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32 for every input, at the requested level of quality.
The generated code must call at least one kernel.
"""

from __future__ import annotations

import functools
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import Engine, completed, take_over
from hotlap.levers.support.programs import PACKAGE, compile_package
from hotlap.levers.support.situations import device_kind, make_setting, without_model
from hotlap.records import EngineReport, NoSourceForm, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The model compiled ahead of time"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
replaces_torch = True
parameters: dict[str, Parameter] = {}
_KERNEL = re.compile(r"\b(?:call_)?(?:cpp_\w+|triton_\w+|aoti_torch_(?:cpu|cuda|mkldnn|xpu)_\w+)\(")
"""A call of a generated kernel, or of one of torch's own, in the code that runs a package."""


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model on a device that Inductor supports; `generate()` makes calls of changing shapes by itself."""
    if without_model(situation):
        return without_model(situation)
    if situation.facts.calls_in_script:
        return Skipped(reason="A script calls its own model; name functions that make model and inputs instead.")
    if situation.facts.generation is not None:
        return Skipped(reason="`generate()` calls the model by itself, and a package holds a single call.")
    if device_kind(situation) not in ("cpu", "cuda"):
        return Skipped(reason=f"AOTInductor has no mature backend for {situation.facts.device}.")
    return None


def bound(situation: Situation) -> float | None:
    """The share of Python in a call is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("aot-inductor"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the package is what is deployed."""
    return (NoSourceForm(reason="The engine runs an exported model, which cannot be written into the source."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Export, compile, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    return Engine(
        name="AOTInductor",
        package="torch",
        build=functools.partial(compile_package, {"freezing": True}),
        loader="aot_inductor",
        inspect=_inspect,
        setting=setting,
        takes_numpy=False,
        precision="",
    )


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    """Count the calls of kernels in the generated code that the package carries."""
    with zipfile.ZipFile(folder / PACKAGE) as package:
        sources = [it for it in package.namelist() if it.endswith(".cpp")]
        kernels = sum(len(_KERNEL.findall(package.read(it).decode(errors="replace"))) for it in sources)
    return completed(report, precision=report.precision, quantized=0, operators=kernels)
