"""Linear layers in 8-bit integers, by torchao.

## What it does
Quantizes the weights of all `nn.Linear` layers to int8, per channel, and their inputs at each call
(`Int8DynamicActivationInt8WeightConfig`), and compiles the model, with its weights frozen into the graph: uncompiled,
the conversions cost more than the products gain.

## When it helps
Transformers and other models that consist of large matrix products, on CPUs with integer dot products (AVX512-VNNI,
AMX). Convolutions stay in float32.

## What it costs
Compiling takes tens of seconds and a C++ compiler. Int8 may change a model's answers: which ones is unknown until it is
measured with the model's own weights.

## Before
    output = model(inputs)

## After
    torchao.quantization.quantize_(model, Int8DynamicActivationInt8WeightConfig())
    model.compile()  # with TORCHINDUCTOR_FREEZING=1
    output = model(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. At least one
layer must have been quantized, and at least one graph compiled.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work, find
from hotlap.levers.support.engines import obstacle_of, quantized_linears, version_of
from hotlap.levers.support.situations import make_setting, without_layers
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    EngineReport,
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

title = "Linear layers in int8, by torchao"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
replaces_torch = True
starts_slowly = True
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model with linear layers on a CPU, and torchao."""
    reason = obstacle_of(situation, ("torchao",), "quantize")
    if reason is not None:
        return reason
    if not any(it.linears for it in situation.facts.models):
        return Skipped(reason="The model has no linear layer, and torchao's int8 applies only to these.")
    return without_layers(situation)


def bound(situation: Situation) -> float | None:
    """The speed of integer products is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("torchao-int8"),)


def environment(setting: Setting) -> dict[str, str]:
    """Freezing is read by Inductor when it is imported."""
    return {"TORCHINDUCTOR_FREEZING": "1"}


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls are hotlap's own; there is no source of the user's to change."""
    return (NoSourceForm(reason="Quantize the model with torchao and compile it, as this lever's page shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Quantize each root when it is found, and compile it."""

    def quantize(root: Any) -> None:
        began = time.perf_counter()
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

        quantize_(root, Int8DynamicActivationInt8WeightConfig())
        report = EngineReport(engine="torchao", version=version_of("torchao"), load_seconds=time.perf_counter() - began)
        hooks.found["engine"] = quantized_linears(hooks.torch, root, report)

    hooks.model_found.append(quantize)
    find("compile").install(hooks, make_setting("compile", mode="default", dynamic=False, freezing=True))
