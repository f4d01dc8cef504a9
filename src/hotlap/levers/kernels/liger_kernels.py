"""Liger's Triton kernels for models of transformers.

## What it does
Replaces operations of a Hugging Face model by the fused kernels of the package liger-kernel, as `use_liger_kernel=True`
does in transformers' Trainer: normalisation, rotary positions, the gated activation, and the loss. With `loss="fused"`
the last layer and the loss are one kernel that never holds the logits.

## When it helps
Language models on NVIDIA and AMD GPUs that spend time in many small operations, or memory in logits: a vocabulary of
128,000 makes them larger than all other activations.

## What it costs
Kernels are compiled by Triton in the first steps. Only some kinds of models have them. With `loss="fused"` the model
returns no logits while it trains: a script that reads them fails.

## Before
    model = AutoModelForCausalLM.from_pretrained(name)

## After
    from liger_kernel.transformers import AutoLigerKernelForCausalLM

    model = AutoLigerKernelForCausalLM.from_pretrained(name)

## What is proved
`rounding`: the same functions, whose sums are added in another order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import bound_without, is_nvidia_like, make_setting, without_model
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

title = "Liger's kernels for models of transformers"
proof: Proof = "rounding"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("dominant-operator", "small-operators", "close-to-limit")
parameters = {"loss": Parameter(str, choices=("own", "fused"))}

PACKAGE = "liger-kernel"
_MODULE = "liger_kernel"


def obstacle(situation: Situation) -> Skipped | None:
    """Require a GPU that Triton compiles for, an uncompiled model of transformers, and the package."""
    if without_model(situation):
        return without_model(situation)
    if not is_nvidia_like(situation):
        return Skipped(reason="Liger's kernels run on NVIDIA and AMD GPUs only.")
    if not any(it.transformers_model for it in situation.facts.models):
        return Skipped(reason="Liger has kernels for models of Hugging Face transformers, and none was seen.")
    if all(it.compiled for it in situation.facts.models):
        return Skipped(reason="The model is compiled, which fuses the same operations.")
    if _MODULE not in situation.facts.packages:
        return Skipped(reason=f"The package {PACKAGE} is not installed: pip install {PACKAGE}.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """With the logits, which scripts may read, and without."""
    return tuple(make_setting("liger-kernels", loss=it) for it in ("own", "fused"))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Which call to write depends on the kind of model."""
    reason = "Load the model with `AutoLigerKernelForCausalLM`, or call Liger's `apply_liger_kernel_to_...` before it."
    return (NoSourceForm(reason=reason),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Replace operations of each model of transformers within a root, once it has been found."""
    fused = dict(setting.values)["loss"] == "fused"

    def found(root: Any) -> None:
        models = _language_models(root)
        if not models:
            return
        apply = _kernels()
        for model in models:
            apply(model=model, fused_linear_cross_entropy=fused, cross_entropy=not fused)
            if not _has_kernels(model):
                hooks.note(f"Liger has no kernels for the model {type(model).__name__}.")

    hooks.model_found.append(found)


def _kernels() -> Callable[..., None]:
    """What patches the modules of one model.

    It is private (liger-kernel 0.3 to 0.6), and what transformers' own `use_liger_kernel` calls. The public functions
    change a kind of model, and only before it is made.
    """
    from liger_kernel.transformers import _apply_liger_kernel_to_instance

    apply: Callable[..., None] = _apply_liger_kernel_to_instance
    return apply


def _language_models(root: Any) -> list[Any]:
    """The outermost modules that have a transformers configuration: the root itself, or what a wrapper holds."""
    if hasattr(getattr(root, "config", None), "model_type"):
        return [root]
    return [it for child in root.children() for it in _language_models(child)]


def _has_kernels(model: Any) -> bool:
    """Whether the forward of any module is Liger's."""
    return any(_MODULE in (getattr(it.forward, "__module__", None) or "") for it in model.modules())
