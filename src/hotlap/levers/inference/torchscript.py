"""The model as TorchScript.

## What it does
Records the model with `torch.jit.trace`, freezes it and calls the recording: no Python runs between operators. Loops in
Python are unrolled to the length of the input that the model was recorded with.

## When it helps
Recurrent networks, whose `nn.LSTM` and `nn.GRU` torch.compile leaves to torch's own kernels, and models of very many
small operators on CPUs.

## What it costs
Recording takes seconds. Control flow that depends on data is recorded for one input, and is wrong for others. PyTorch
no longer develops TorchScript.

## Before
    output = model(inputs)

## After
    recorded = torch.jit.freeze(torch.jit.trace(model, (inputs,)))
    output = recorded(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32 for every input, at the requested level of quality.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import NOT_IN_SOURCE, Calls, Engine, completed, take_over
from hotlap.levers.support.situations import make_setting, models_with, without_model
from hotlap.records import EngineReport, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The model as TorchScript"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
addresses: tuple[str, ...] = ()
replaces_torch = True
parameters: dict[str, Parameter] = {}
_FILE = "model.ts"


def obstacle(situation: Situation) -> Skipped | None:
    """Require recurrent layers: torch.compile is better for all other models."""
    if without_model(situation):
        return without_model(situation)
    if not models_with(situation, "recurrent"):
        return Skipped(reason="The model has no recurrent layer; use torch.compile for other models.")
    return None


def bound(situation: Situation) -> float | None:
    """The share of Python in a call is unknown before it is measured."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("torchscript"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; the recorded model is what is deployed."""
    return NOT_IN_SOURCE


def install(hooks: Hooks, setting: Setting) -> None:
    """Trace, freeze, save, load."""
    take_over(hooks, engine(setting))


def engine(setting: Setting) -> Engine:
    """Return how its files are written, loaded and inspected."""
    return Engine(
        name="TorchScript",
        package="torch",
        build=_build,
        loader="torchscript",
        inspect=_inspect,
        setting=setting,
        takes_numpy=False,
    )


def _build(calls: Calls, folder: Path) -> int:
    jit = calls.torch.jit
    with calls.torch.no_grad():
        recorded = jit.trace(calls.as_module().eval(), calls.example_tensors(), check_trace=False, strict=False)
    jit.freeze(recorded).save(str(folder / _FILE))
    return 0


def _inspect(report: EngineReport, folder: Path) -> EngineReport:
    import torch

    recorded: Any = torch.jit.load(str(folder / _FILE))  # type: ignore[no-untyped-call]
    return completed(
        report, precision=report.precision, quantized=0, operators=len(list(recorded.inlined_graph.nodes()))
    )
