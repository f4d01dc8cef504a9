"""Weights of linear layers in 8-bit integers, computed with in the model's own format, by torchao.

## What it does
Quantizes the weights of all `nn.Linear` layers to int8, per channel (`Int8WeightOnlyConfig`), and leaves activations as
they are: a product first widens the weights it needs.

## When it helps
Memory: weights take a quarter of float32's. Speed where a call mostly waits for weights to be read, as in generating
text with few prompts, and where a compiled kernel widens them on the way (`static-cache` with `compile`).

## What it costs
Uncompiled, weights are widened in memory before each product, which may take longer than it saves. Int8 may change a
model's answers: which ones is unknown until it is measured with the model's own weights.

## Before
    output = model(inputs)

## After
    from torchao.quantization import Int8WeightOnlyConfig, quantize_

    quantize_(model, Int8WeightOnlyConfig())
    output = model(inputs)

## What is proved
`rounding`: outputs are compared with those of the model in float32, at the requested level of quality. At least one
layer must have been quantized.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.engines import quantized_linears, version_of
from hotlap.levers.support.situations import make_setting, without_layers, without_model
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

title = "Weights of linear layers in int8"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("inference",)
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses: tuple[str, ...] = ()
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require linear layers, and torchao."""
    if without_model(situation):
        return without_model(situation)
    if "torchao" not in situation.facts.packages:
        return Skipped(reason='It needs torchao: pip install "hotlap[quantize]".')
    if not any(it.linears for it in situation.facts.models):
        return Skipped(reason="The model has no linear layer, and torchao's int8 applies only to these.")
    return without_layers(situation)


def bound(situation: Situation) -> float | None:
    """What reading weights takes is measured, not assumed."""
    return None


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("int8-weights"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Where a model has its final weights is not seen."""
    return (NoSourceForm(reason="Quantize the model once its weights are loaded, as this lever's page shows."),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Quantize each root when it is found."""

    def quantize(root: Any) -> None:
        began = time.perf_counter()
        from torchao.quantization import Int8WeightOnlyConfig, quantize_

        quantize_(root, Int8WeightOnlyConfig())
        report = EngineReport(engine="torchao", version=version_of("torchao"), load_seconds=time.perf_counter() - began)
        hooks.found["engine"] = quantized_linears(hooks.torch, root, report)

    hooks.model_found.append(quantize)
