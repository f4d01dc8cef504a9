"""Forward pass and loss in a 16-bit format, weights in 32.

## What it does
Puts each training step's forward pass and loss under `torch.autocast`: matrix products and convolutions run in
bfloat16 or float16, sums and losses stay in float32, and so do weights, gradients and optimizer state. The region
begins with the model's forward pass and ends where backward begins, so that the loss is inside. Evaluation stays
outside.

bfloat16 has float32's range and needs nothing else. float16 (GPUs without bfloat16 units) has a small range: the loss
is scaled up before backward, gradients are scaled down right after it and so before any clipping, a step whose
gradients overflow is skipped and the scale is halved. The report counts skipped steps.

## When it helps
If matrix products or convolutions dominate the step and the hardware multiplies 16-bit numbers natively: tensor cores,
or a CPU with bfloat16 instructions. Activations take half the memory.

## What it costs
Forward and backward keep two to three decimal digits. Outputs of the model have 16 bits: a script that passes them to
NumPy fails for bfloat16, and `binary_cross_entropy` on probabilities may raise an error. Some recurrent models learn
worse without any error; the comparison of numbers detects that.

## Before
    output = model(inputs)
    loss = criterion(output, targets)
    loss.backward()

## After
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = model(inputs)
        loss = criterion(output, targets)
    loss.backward()

## What is proved
`rounding`: the first step's loss and gradients are close in value and direction, and the loss follows the same
trajectory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hotlap.levers.api import Parameter, Work
from hotlap.levers.support.loss_scaler import LossScaler
from hotlap.levers.support.situations import bound_without, device_kind, make_setting, native_dtypes, without_model
from hotlap.levers.support.switching import Switch, gated
from hotlap.records import (
    PEAK_BYTES,
    SECONDS_PER_SAMPLE,
    CallRegion,
    ForwardRegion,
    Proof,
    ScaledLoss,
    ScriptFacts,
    Setting,
    Situation,
    Skipped,
    SourceChange,
)

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Fetch, Hooks

title = "Forward pass and loss in a 16-bit format"
proof: Proof = "rounding"
work: tuple[Work, ...] = ("training", "inference")
improves = (SECONDS_PER_SAMPLE, PEAK_BYTES)
addresses = ("slow-matmul-precision",)
parameters = {"dtype": Parameter(str, choices=("bfloat16", "float16"))}


def obstacle(situation: Situation) -> Skipped | None:
    """Require a float32 model on a device that multiplies 16-bit numbers."""
    facts = situation.facts
    if facts.autocast_dtype:
        return Skipped(reason=f"The script already computes under autocast ({facts.autocast_dtype}).", already=True)
    if without_model(situation):
        return without_model(situation)
    dtypes = {model.dtype for model in facts.models}
    if dtypes <= {"bfloat16", "float16"}:
        return Skipped(reason=f"The model's weights are {' and '.join(sorted(dtypes))} already.", already=True)
    if "float32" not in dtypes:
        return Skipped(reason=f"The model computes in {' and '.join(sorted(dtypes))}, which autocast does not change.")
    if device_kind(situation) not in ("cpu", "cuda"):
        return Skipped(reason=f"Mixed precision is known to help on CPUs and GPUs, not on {facts.device}.")
    return None if candidates(situation) else Skipped(reason=_why_no_format(situation))


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try bfloat16 if the hardware has it; else float16, only on GPUs and if loss scaling is possible."""
    native = native_dtypes(situation)
    if "bfloat16" in native:
        return (make_setting("mixed-precision", dtype="bfloat16"),)
    if device_kind(situation) == "cuda" and "float16" in native and not _why_no_scaling(situation):
        return (make_setting("mixed-precision", dtype="float16"),)
    return ()


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """Wrap forward and loss in autocast; for float16 add a scaler."""
    dtype = str(dict(setting.values)["dtype"])
    device = facts.device.partition(":")[0]
    context, needs = f'torch.autocast("{device}", dtype=torch.{dtype})', ("torch.autocast", f"torch.{dtype}")
    if facts.step_source == "call":
        return (CallRegion(context=context, needs=needs, already="autocast"),)
    region = ForwardRegion(context=context, needs=needs, already="autocast")
    return (region, ScaledLoss(device=device)) if dtype == "float16" else (region,)


def install(hooks: Hooks, setting: Setting) -> None:
    """Open the region at a root's training forward and close it at backward, or at anything that shows that no backward
    will follow."""
    dtype = str(dict(setting.values)["dtype"])
    region = _Region(hooks, getattr(hooks.torch, dtype))

    def before_forward(
        root: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        region.enter(root)
        return args, kwargs

    def before_backward(tensor: Any) -> Any:
        region.leave()
        return tensor

    def around_evaluation(root: Any, forward: Fetch) -> Any:
        # A forward without gradients may come between the parts of a loss, so the region goes on after it.
        suspended = region.leave()
        try:
            return forward()
        finally:
            if suspended:
                region.enter(suspended)

    def around(subject: Any, call: Fetch) -> Any:
        region.leave()
        return call()

    def around_save(save: Fetch) -> Any:
        region.leave()
        return save()

    def close() -> None:
        region.leave()

    hooks.before_forward.append(before_forward)
    hooks.before_backward.append(before_backward)
    hooks.around_evaluation.append(around_evaluation)
    hooks.around_fetch.append(around)
    hooks.around_loader_start.append(around)
    hooks.around_step.append(around)
    hooks.around_save.append(around_save)
    hooks.back_to_script.append(close)
    hooks.before_exit.append(close)
    if dtype == "float16":
        _scale_losses(hooks)


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Open the region only in steps for which it is on; close it whenever a step ends."""
    return gated(hooks, lambda behind_gate: install(behind_gate, setting))


class _Region:
    """One autocast region of the main thread; entering or leaving twice is harmless.

    Entering again restarts the region: autocast caches converted weights while a region lasts, and would not notice
    that the script changed them since an earlier forward without a backward.
    """

    def __init__(self, hooks: Hooks, dtype: Any) -> None:
        self._torch = hooks.torch
        self._device_kind = hooks.device_kind
        self._dtype = dtype
        self._autocast: Any = None
        self._root: Any = None

    def enter(self, root: Any) -> None:
        """Begin on the root's device, unless the script has opened its own region."""
        self.leave()
        kind = self._device_kind(root)
        if self._torch.is_autocast_enabled(kind):
            return
        self._autocast = self._torch.autocast(kind, dtype=self._dtype)
        self._autocast.__enter__()
        self._root = root

    def leave(self) -> Any:
        """End the region; return the root that it was entered for, or None if it was not open."""
        if self._autocast is None:
            return None
        autocast, root = self._autocast, self._root
        self._autocast = self._root = None
        autocast.__exit__(None, None, None)
        return root


def _scale_losses(hooks: Hooks) -> None:
    """Scale before backward, unscale after it, and skip steps whose gradients overflowed."""
    scaler = LossScaler(hooks.torch)
    stepping: list[Any] = []

    def before_backward(tensor: Any) -> Any:
        scaler.settle(tensor)
        scaler.begin_backward()
        if isinstance(tensor, (tuple, list)):
            return [scaler.scaled(it) for it in tensor]
        return scaler.scaled(tensor)

    def after_backward() -> None:
        scaler.unscale()
        for optimizer in stepping:  # a closure inside a running step: it can no longer be skipped
            if scaler.overflown(optimizer):
                hooks.scaler_skipped_steps += 1
                optimizer.zero_grad(set_to_none=True)  # optimizers skip parameters without a gradient

    def around_step(optimizer: Any, step: Fetch) -> Any:
        if scaler.overflown(optimizer):
            hooks.scaler_skipped_steps += 1
            for tell in hooks.update_skipped:
                tell(optimizer)
            return None
        stepping.append(optimizer)
        try:
            return step()
        finally:
            stepping.pop()

    hooks.after_optimizer.append(scaler.add)
    hooks.before_backward.append(before_backward)
    hooks.after_backward.append(after_backward)
    hooks.around_step.append(around_step)


def _why_no_scaling(situation: Situation) -> str:
    facts = situation.facts
    if facts.step_source == "backward" or not facts.optimizers:
        return "float16 needs an optimizer whose steps can be skipped, and the script updates its weights by hand"
    if facts.grad_scaler:
        return "the script scales its loss itself"
    if facts.processes > 1:
        return "float16 with several processes would need them to agree on every skipped step"
    return ""


def _why_no_format(situation: Situation) -> str:
    if device_kind(situation) == "cuda" and "float16" in native_dtypes(situation):
        return f"This GPU has no bfloat16 units, and {_why_no_scaling(situation)}."
    return "No 16-bit format is known to multiply faster than float32 on this device: converting to it would not pay."
