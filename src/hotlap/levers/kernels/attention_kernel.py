"""The kernel that computes torch's attention.

## What it does
`scaled_dot_product_attention` chooses among several kernels by the inputs alone. This lever disables all but one of
them, process-wide, with `torch.backends.cuda.enable_flash_sdp(False)` and the like, which on a CPU decide too. The
plain kernel (`math`) stays enabled, since it computes what the others cannot.

## When it helps
With short sequences or small heads the plain kernel may be faster than a fused one. On GPUs, which fused kernel is the
fastest depends on head size, sequence length, mask and the GPU.

## What it costs
The plain kernel keeps the matrix of scores for the backward pass: its memory grows with the square of the sequence's
length. Dropout in attention draws other random numbers.

## Before
    output = model(tokens)

## After
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    output = model(tokens)

## What is proved
`rounding`: the same attention is summed in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.situations import accelerator, bound_without, is_nvidia_like, make_setting, without_model
from hotlap.levers.support.switching import Switch, remembered
from hotlap.records import Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange, TopStatement

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "The kernel that computes torch's attention"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
addresses = ("dominant-operator",)

_NAMES: Mapping[str, str] = MappingProxyType({"flash": "flash", "efficient": "mem_efficient", "cudnn": "cudnn"})
"""The fused kernels, by torch's names for their switches."""

_CUDNN_FIRST = ("9.0", "10.0")
"""Capabilities of the devices on which torch prefers cuDNN's kernel (its ``check_prefer_cudnn_attention``)."""

_HALF = frozenset({"bfloat16", "float16"})

parameters = {"kernel": Parameter(str, choices=("math", *_NAMES))}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a model that is known to use torch's attention, uncompiled: a compiled one has chosen its kernel."""
    if without_model(situation):
        return without_model(situation)
    models = [it for it in situation.facts.models if it.attention == "sdpa"]
    if not models:
        return Skipped(reason="No Hugging Face model with torch's `scaled_dot_product_attention` was seen.")
    if all(it.compiled for it in models):
        return Skipped(reason="The model is compiled, and its kernel is chosen by the compiler.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """On a CPU there is one fused kernel, which torch prefers itself. On a device flash and cuDNN's take half precision
    only, and cuDNN's is tried only where torch puts it first: elsewhere the plain kernel would be measured, which
    computes what the others cannot."""
    if not is_nvidia_like(situation):
        return (make_setting("attention-kernel", kernel="math"),)
    device, facts = accelerator(situation), situation.facts
    dtypes = {facts.autocast_dtype, *(it.dtype for it in facts.models if it.attention == "sdpa")}
    first = ("cudnn",) if device is not None and device.capability in _CUDNN_FIRST else ()
    halved = (*first, "flash") if dtypes & _HALF else ()
    return tuple(make_setting("attention-kernel", kernel=it) for it in (*halved, "efficient", "math"))


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The calls, below the imports."""
    wanted = dict(setting.values)["kernel"]
    names = [f"torch.backends.cuda.enable_{it}_sdp" for kernel, it in _NAMES.items() if kernel != wanted]
    return tuple(TopStatement(code=f"{it}(False)", needs=(it,)) for it in names)


def install(hooks: Hooks, setting: Setting) -> None:
    """Once, as torch is imported; a script that enables a kernel later takes precedence."""
    _write(hooks.torch, _wanted(hooks.torch, setting))


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Which kernels are enabled. What is compiled meanwhile keeps the kernel that it was compiled with."""
    torch = hooks.torch
    return remembered(lambda: _read(torch), lambda enabled: _write(torch, enabled), _wanted(torch, setting))


def _wanted(torch: Any, setting: Setting) -> tuple[bool, ...]:
    """Which of the fused kernels are enabled; one that the script has disabled stays so."""
    wanted = dict(setting.values)["kernel"]
    return tuple(kernel == wanted and now for kernel, now in zip(_NAMES, _read(torch), strict=True))


def _read(torch: Any) -> tuple[bool, ...]:
    return tuple(getattr(torch.backends.cuda, f"{it}_sdp_enabled")() for it in _NAMES.values())


def _write(torch: Any, enabled: tuple[bool, ...]) -> None:
    for name, is_on in zip(_NAMES.values(), enabled, strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(is_on)
