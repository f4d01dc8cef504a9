"""Gather and compute the weights of a sharded model in bfloat16 (the policy of FSDP).

## What it does
Gives each `fully_shard` an `mp_policy`, or each `FullyShardedDataParallel` a `mixed_precision`, with
`param_dtype=bfloat16` and `reduce_dtype=float32`: the weights are cast before they are gathered, forward and backward
compute with them, and gradients are averaged in float32. The shards, the optimizer's state and the updates stay in
float32. What the model returns is cast to float32 again, so that the loss is computed in it.

## When it helps
If exchanging weights takes a notable share of the step, which then moves half as many bytes, or if the hardware
multiplies bfloat16 natively.

## What it costs
Forward and backward keep two to three decimal digits, also in evaluation. Unlike under autocast, sums within the model
are computed in bfloat16, too.

## Before
    fully_shard(block)

## After
    fully_shard(block, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))

## What is proved
`rounding`: the first step's loss and gradients are close in value and direction, and the losses of every process follow
the same trajectory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter
from hotlap.levers.support.sharded_by_script import sharded, without_sharding
from hotlap.levers.support.situations import bound_without, make_setting, native_dtypes
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

title = "Gather and compute the weights of a sharded model in bfloat16"
proof: Proof = "rounding"
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("exposed-communication", "slow-matmul-precision")
parameters = {"param_dtype": Parameter(str, choices=("bfloat16",))}
changes_evaluation = True


def obstacle(situation: Situation) -> Skipped | None:
    """Require float32 weights that FSDP gathers as they are, on a device that multiplies bfloat16."""
    if without_sharding(situation):
        return without_sharding(situation)
    if any(it.param_dtype for it in sharded(situation)):
        return Skipped(reason="The script sets a policy of mixed precision for FSDP.", already=True)
    if any(it.dtype != "float32" for it in situation.facts.models):
        return Skipped(reason="The weights are not in float32.")
    if situation.facts.grad_scaler:
        return Skipped(
            reason="A GradScaler is not needed with bfloat16, and its inspections would find other gradients."
        )
    if "bfloat16" not in native_dtypes(situation):
        return Skipped(reason="The hardware is not known to multiply bfloat16 natively.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """There is one format."""
    return (make_setting("sharded-precision", param_dtype="bfloat16"),)


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """No edit: where the script shards its model is not recorded."""
    policy = "param_dtype=torch.bfloat16, reduce_dtype=torch.float32"
    return (
        NoSourceForm(
            reason=f"Pass mp_policy=MixedPrecisionPolicy({policy}) to each fully_shard, or "
            f"mixed_precision=MixedPrecision({policy}) to FullyShardedDataParallel."
        ),
    )


def install(hooks: Hooks, setting: Setting) -> None:
    """Set the policy where the model is sharded, and cast what it returns."""
    dtype = getattr(hooks.torch, str(dict(setting.values)["param_dtype"]))
    changed: list[bool] = []

    def set_policy(interface: str, arguments: dict[str, Any]) -> None:
        from torch.distributed import fsdp

        kinds: dict[str, tuple[str, Any]] = {
            "fsdp1": ("mixed_precision", fsdp.MixedPrecision),
            "fsdp2": ("mp_policy", fsdp.MixedPrecisionPolicy),
        }
        name, kind = kinds[interface]
        if getattr(arguments.get(name), "param_dtype", None) is not None:
            hooks.note("Part of the model keeps the precision that the script sets for it.")
            return
        arguments[name] = kind(param_dtype=dtype, reduce_dtype=hooks.torch.float32)
        changed.append(True)

    def found(root: Any) -> None:
        if changed:
            root.register_forward_hook(lambda module, args, output: _widened(hooks.torch, output, dtype))

    hooks.before_sharding.append(set_policy)
    hooks.model_found.append(found)


def _widened(torch: Any, value: Any, dtype: Any) -> Any:
    """The value with its tensors of ``dtype`` in float32; what is neither a tensor nor a container stays."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == dtype else value
    if isinstance(value, dict):
        wide = {key: _widened(torch, it, dtype) for key, it in value.items()}
        return wide if type(value) is dict else type(value)(**wide)
    if isinstance(value, (list, tuple)):
        parts = [_widened(torch, it, dtype) for it in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value
