"""Float32 matrix products on faster hardware units.

## What it does
Calls `torch.set_float32_matmul_precision` right after torch's import. `high` lets an NVIDIA GPU from Ampere on compute
float32 matrix products in TensorFloat-32: the same exponent range, 10 instead of 23 bits of mantissa, accumulated in
float32. `medium` lets a CPU compute them, and its convolutions and recurrent layers, in bfloat16.

## When it helps
On GPUs: if forward and backward are dominated by float32 linear layers or attention (cuDNN's convolutions use
TensorFloat-32 by default). With mixed precision it gains little. On CPUs: oneDNN uses bfloat16 inside float32 products
only on processors with matrix tiles (AMX); on others the setting merely chooses another library for them, which can be
faster or slower.

## What it costs
About three decimal digits in matrix products. Weights, gradients and optimizer state stay float32.

## Before
    model = Transformer().cuda()

## After
    torch.set_float32_matmul_precision("high")
    model = Transformer().cuda()

## What is proved
`rounding`: the first step's loss and gradients are compared with a reference, then the trajectory of the loss.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hotlap.levers.api import Parameter
from hotlap.levers.support.situations import accelerator, bound_without, device_kind, make_setting, native_dtypes
from hotlap.levers.support.switching import Switch
from hotlap.records import Proof, ScriptFacts, Setting, Situation, Skipped, SourceChange, TopStatement

if TYPE_CHECKING:
    from hotlap.runtime.hooks import Hooks

title = "Float32 matrix products on faster hardware units"
proof: Proof = "rounding"
addresses = ("slow-matmul-precision",)
parameters = {"precision": Parameter(str, choices=("high", "medium"))}

FIRST_CAPABILITY_WITH_TF32 = 8


def obstacle(situation: Situation) -> Skipped | None:
    """Require hardware with a faster mode for float32 matrices."""
    current = situation.facts.matmul_precision
    if current != "highest":
        return Skipped(reason=f"The script already allows {current!r} float32 matrix products.", already=True)
    if any(model.dtype == "float64" for model in situation.facts.models):
        return Skipped(reason="The model computes in float64, which this does not affect.")
    if not _precision(situation):
        return Skipped(reason=f"This {device_kind(situation)} device has no faster unit for float32 matrices.")
    return None


def bound(situation: Situation) -> float | None:
    """Only forward and backward can become faster."""
    return bound_without(situation, "forward", "backward")


def candidates(situation: Situation) -> tuple[Setting, ...]:
    """Try the precision that this device supports."""
    precision = _precision(situation)
    return (make_setting("matmul-precision", precision=precision),) if precision else ()


def rewrite(facts: ScriptFacts, setting: Setting) -> tuple[SourceChange, ...]:
    """The switches, below the imports."""
    precision = str(dict(setting.values)["precision"])
    call = TopStatement(
        code=f'torch.set_float32_matmul_precision("{precision}")', needs=("torch.set_float32_matmul_precision",)
    )
    if precision != "medium" or not _has_switches(facts.torch_version):
        return (call,)
    names = [f"torch.backends.mkldnn.{part}.fp32_precision" for part in ("conv", "rnn")]
    return (call, *(TopStatement(code=f'{name} = "bf16"', needs=(name,)) for name in names))


def _has_switches(torch_version: str) -> bool:
    """Whether oneDNN's convolutions and recurrent layers have their own switches (torch 2.9 and later)."""
    numbers = [int(it) if it.isdecimal() else 0 for it in torch_version.split("+")[0].split(".")[:2]]
    return tuple(numbers) >= (2, 9)


def install(hooks: Hooks, setting: Setting) -> None:
    """Set it immediately; a script that sets it later takes precedence."""
    torch = hooks.torch
    precision = dict(setting.values)["precision"]
    torch.set_float32_matmul_precision(precision)
    onednn = torch.backends.mkldnn
    if precision == "medium" and hasattr(onednn, "conv"):  # since torch 2.9; convolutions have their own switch
        onednn.conv.fp32_precision = "bf16"
        onednn.rnn.fp32_precision = "bf16"


def switch(hooks: Hooks, setting: Setting) -> Switch:
    """Restore all of torch's switches for it when off."""
    torch = hooks.torch
    onednn = torch.backends.mkldnn
    parts = [onednn.conv, onednn.rnn] if hasattr(onednn, "conv") else []
    before: list[tuple[str, list[str]]] = []

    def on() -> None:
        before.append((torch.get_float32_matmul_precision(), [it.fp32_precision for it in parts]))
        install(hooks, setting)

    def off() -> None:
        precision, of_parts = before.pop()
        torch.set_float32_matmul_precision(precision)
        for part, own in zip(parts, of_parts, strict=True):
            part.fp32_precision = own

    return Switch(on, off)


def _precision(situation: Situation) -> str:
    if device_kind(situation) == "cpu":
        return "medium" if "bfloat16" in native_dtypes(situation) else ""
    device = accelerator(situation)
    if device is None or device.kind != "cuda":
        return ""
    generation = device.capability.partition(".")[0]
    return "high" if generation.isdecimal() and int(generation) >= FIRST_CAPABILITY_WITH_TF32 else ""
