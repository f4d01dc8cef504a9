"""Weights and activations in a 16-bit format.

## What it does
Converts the model with `model.to(torch.bfloat16)`, and floating inputs before each call. Everything is computed in
bfloat16, including what autocast would keep in float32, and half as many bytes are read for each weight.

## When it helps
Processors that multiply 16-bit numbers (AVX512-BF16, AMX, tensor cores), and small batches, which wait for the weights
to be read. Unlike autocast, it needs no conversions at each call.

## What it costs
About three decimal digits are left. Sums over many elements, normalizations and softmax lose more than under autocast.
Outputs are in bfloat16. A script gets them in float32, since NumPy and layers in float32 do not take bfloat16.

## Before
    output = model(inputs)

## After
    model = model.to(torch.bfloat16)
    output = model(inputs.to(torch.bfloat16))

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import device_kind, make_setting, native_dtypes, without_model
from hotlap.levers.support.structures import in_format
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    NoSourceForm,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Weights in a 16-bit format"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
parameters = {"dtype": Parameter(str, choices=("bfloat16", "float16"))}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a float32 model on a device that multiplies 16-bit numbers."""
    if without_model(situation):
        return without_model(situation)
    if situation.facts.autocast_dtype:
        return Skipped(reason=f"The model computes under autocast ({situation.facts.autocast_dtype}) already.")
    dtypes = {model.dtype for model in situation.facts.models}
    if "float32" not in dtypes:
        return Skipped(reason=f"The model's weights are {' and '.join(sorted(dtypes))} already.", already=True)
    if candidates(situation):
        return None
    return Skipped(reason="No 16-bit format is known to multiply faster than float32 on this device.")


def bound(situation: Situation) -> float | None:
    """How fast a device multiplies and reads 16-bit numbers is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """bfloat16 where the hardware has it; float16 on GPUs only, where it is as fast."""
    native = native_dtypes(situation)
    formats = ["bfloat16", "float16"] if device_kind(situation) == "cuda" else ["bfloat16"]
    return tuple(make_setting("half-weights", dtype=it) for it in formats if it in native)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Said in words: a function's model is called by hotlap itself, and a script's calls are not edited yet."""
    outputs = ", and its outputs with `.float()`" if facts.calls_in_script else ""
    dtype = dict(setting.values)["dtype"]
    reason = f"Convert the model and its floating inputs with `.to(torch.{dtype})`{outputs}."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Convert the model once, floating tensors among the arguments of each call, and what a script gets from it."""
    torch = hooks.torch
    dtype = getattr(torch, str(dict(setting.values)["dtype"]))

    def convert_model(model: Any) -> None:
        model.to(dtype)

    def convert_inputs(
        model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given: tuple[tuple[Any, ...], dict[str, Any]] = in_format(
            (args, kwargs), lambda it: it.to(dtype) if it.is_floating_point() else it
        )
        return given

    hooks.model_found.append(convert_model)
    hooks.before_forward.append(convert_inputs)
    hooks.output_to_script.append(partial(in_format, convert=lambda it: it.float() if it.dtype == dtype else it))
