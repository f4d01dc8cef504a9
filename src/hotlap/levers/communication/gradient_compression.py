"""Exchange gradients in 16 bits.

## What it does
Registers torch's `bf16_compress_hook` (or `fp16_compress_hook`) with each `DistributedDataParallel`: gradients are
rounded to 16 bits, exchanged and added up in that format, and converted back.

## When it helps
If links between devices limit the step: half as many bytes are sent.

## What it costs
Precision of the gradients that several processes share: bfloat16 keeps eight bits. float16 keeps eleven, but overflows
above 65504; with gloo torch offers only that. What is learned may change, so it is tried only if it is named.

## Before
    model = DistributedDataParallel(model)

## After
    model = DistributedDataParallel(model)
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)

## What is proved
`behaviour`: gradients are rounded. Runs with paired seeds must learn as well as without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.data_parallel import bound_of_exchange, without_exchange, wrappers
from hotlap.levers.support.situations import make_setting
from hotlap.records import DataParallelStatement, Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Exchange gradients in 16 bits"
proof: Proof = "behaviour"
addresses = ("exposed-communication",)
parameters = {"dtype": Parameter(str, choices=("bfloat16", "float16"))}

_HOOKS = {"bfloat16": "bf16_compress_hook", "float16": "fp16_compress_hook"}
_MODULE = "torch.distributed.algorithms.ddp_comm_hooks.default_hooks"


def obstacle(situation: Situation) -> Skipped | None:
    """Require full-precision gradients, and no other hook."""
    if without_exchange(situation):
        return without_exchange(situation)
    registered = next((it.communication_hook for it in wrappers(situation) if it.communication_hook), "")
    if registered:
        already = registered in _HOOKS.values()
        return Skipped(reason=f"The script registers {registered} to exchange its gradients.", already=already)
    if any(it.dtype not in ("float32", "float64") for it in situation.facts.models):
        return Skipped(reason="The model's weights, and so its gradients, are in 16 bits already.", already=True)
    return None


def bound(situation: Situation) -> float | None:
    """The exchange is part of the backward pass."""
    return bound_of_exchange(situation)


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """bfloat16 has the range of float32; torch offers it with NCCL and XCCL only."""
    backends = " ".join(it.backend for it in wrappers(situation))
    has_bfloat16 = "nccl" in backends or "xccl" in backends
    return (make_setting("gradient-compression", dtype="bfloat16" if has_bfloat16 else "float16"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Register the hook below the line that makes the wrapper."""
    hook = f"{_MODULE}.{_HOOKS[str(dict(setting.values)['dtype'])]}"
    return (DataParallelStatement(code=f"_.register_comm_hook(None, {hook})", needs=(hook,)),)


def install(hooks: Hooks, setting: Setting) -> None:
    """Register the hook when a wrapper is made."""
    name = _HOOKS[str(dict(setting.values)["dtype"])]

    def register(wrapper: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        wrapper.register_comm_hook(wrapper.process_group, getattr(default_hooks, name))

    hooks.after_data_parallel.append(register)
