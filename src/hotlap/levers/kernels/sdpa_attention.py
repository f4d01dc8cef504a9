"""Fused attention in place of a Hugging Face model's eager attention.

## What it does
Switches a `transformers` model whose configuration says `eager` to torch's `scaled_dot_product_attention`, with the
model's own `set_attn_implementation`. If the device has such a kernel (such as FlashAttention), the score matrix is
then not written to memory, but computed block by block.

## When it helps
Long sequences: memory and memory traffic grow with the sequence length instead of its square. Most models of recent
`transformers` use it by default; scripts with `attn_implementation="eager"` do not.

## What it costs
Attention weights can no longer be returned (`output_attentions=True` falls back to eager). Dropout in attention draws
other random numbers.

## Before
    model = AutoModel.from_pretrained(name, attn_implementation="eager")

## After
    model = AutoModel.from_pretrained(name, attn_implementation="sdpa")

## What is proved
`rounding`: the same attention is summed in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.support.situations import bound_without, make_setting, without_model
from hotlap.levers.support.switching import Switch, of_models
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    AttentionArgument,
    Proof,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.levers.api import Parameter, Work
    from hotlap.runtime.hooks import Hooks

title = "Fused attention for Hugging Face models"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("eager-attention",)
parameters: dict[str, Parameter] = {}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a Hugging Face model with eager attention."""
    if without_model(situation):
        return without_model(situation)
    used = {model.attention for model in situation.facts.models if model.attention}
    if "eager" in used:
        return None
    if used:
        return Skipped(reason=f"The model's attention is {' and '.join(sorted(used))} already.", already=True)
    return Skipped(reason="The model is not a Hugging Face model with switchable attention.")


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There are no parameters."""
    return (make_setting("sdpa-attention"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Replace the argument where the script requests the eager implementation."""
    return (AttentionArgument(implementation="sdpa", instead_of="eager"),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Switch every eager model inside a root when the root is found."""

    def switch(root: Any) -> None:
        for module in root.modules():
            if getattr(getattr(module, "config", None), "_attn_implementation", None) == "eager":
                _switch_one(hooks, module)

    hooks.model_found.append(switch)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Switch models back to eager attention when off; a model found while it is on is switched too."""
    switched: list[Any] = []

    def put_on(root: Any) -> None:
        for module in root.modules():
            if getattr(getattr(module, "config", None), "_attn_implementation", None) == "eager":
                _switch_one(hooks, module)
                if module.config._attn_implementation != "eager":
                    switched.append(module)

    def take_off() -> None:
        while switched:
            switched.pop().set_attn_implementation("eager")

    return of_models(hooks, put_on, take_off)


def _switch_one(hooks: Hooks, model: Any) -> None:
    """Use the model's own method, which checks support; parts with the same configuration follow."""
    change = getattr(model, "set_attn_implementation", None)
    if change is None:
        if hasattr(model, "from_pretrained"):  # otherwise a layer that shares the model's configuration
            hooks.note(f"{type(model).__name__} keeps its eager attention: this transformers cannot switch it.")
        return
    try:
        change("sdpa")
    except (ValueError, ImportError) as error:
        hooks.note(f"{type(model).__name__} keeps its eager attention: {error}")
