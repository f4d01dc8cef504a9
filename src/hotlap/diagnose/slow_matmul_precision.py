"""Matrix products are computed in float32 on hardware that has a faster mode for them.

## What it is
Matrix products, convolutions and recurrent layers with float32 inputs take a good part of the step. The hardware
multiplies a shorter format several times as fast, and the script asks for none: it runs without autocast, and
`torch.get_float32_matmul_precision()` is `highest`.

## Why it is slow
A GPU's matrix units multiply float16, bfloat16 and TensorFloat-32 numbers; true float32 products run beside them on its
ordinary units, at a fraction of the rate. The same holds for processors with instructions for bfloat16. Shorter numbers
also halve what is read and written.

## How to see it
`hotlap profile train.py` shows the rates that this machine reached in each format, and what the products take of a
step. What they could save at most is their share times what the rates differ by; products too small to reach such rates
save less. cuDNN computes float32 convolutions in TensorFloat-32 by itself, so only its distance to 16 bits counts.

## What to do
Run forward and loss under `torch.autocast(device, dtype=torch.bfloat16)`. Or allow a shorter mantissa inside float32
products: `torch.set_float32_matmul_precision("high")` on GPUs, `"medium"` on processors.

## When it is fine
Where the digits matter: solvers, second-order optimizers, some recurrent models and physics. Compare the loss over some
hundred steps before you keep it; `hotlap tune train.py` does that by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from hotlap.diagnose.examples import CPU, GPU, operator, run_on
from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    dtype_of,
    in_words,
    is_attention,
    is_matrix_work,
    is_product,
    kernels_matter,
    own_nanoseconds,
    share_of,
    site_with,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most
from hotlap.diagnose.wording import levers_for, percent
from hotlap.levers.situations import native_dtypes
from hotlap.records import Ceilings, Finding, Machine
from hotlap.trace.records import OperatorRow

title = "Float32 matrix products on hardware with a faster mode"
group = "compute"
rests_on = ("account", "profile", "matmul")


def check(profile: Profile) -> Iterator[Finding]:
    """Only where the script asks for no faster mode, and the rates measured leave something to gain."""
    facts = profile.facts
    modes = _faster_modes(profile)
    if facts.autocast_dtype or facts.matmul_precision != "highest" or not modes or not kernels_matter(profile):
        return
    slow = [it for it in profile.operators if is_matrix_work(it) and dtype_of(it) == "float32"]
    rates = _rates(profile)
    best = max(modes, key=lambda it: rates.get(it, 0.0))
    saving = sum(share_of(profile, [it]) * _part_saved(it, best, modes, rates) for it in slow)
    if saving < WORTH_A_LOOK:
        return
    dearest = max(slow, key=lambda it: own_nanoseconds(profile, it))
    has_plain_products = any(_runs_in(it, modes) == "float32" for it in slow)
    levers = levers_for("slow-matmul-precision", profile.situation)
    yield Finding(
        rule="slow-matmul-precision",
        share=at_most(saving),
        title=_title(share_of(profile, slow), min(1.0, saving), best, measured=best in rates and "float32" in rates),
        evidence=(
            f"Most of it: {in_words(dearest)}, {percent(share_of(profile, [dearest]))} of the step.",
            *_rates_in_words(modes, rates),
            "What it could save is a bound: products too small to reach such rates gain less.",
        ),
        remedy=_remedy(profile, modes, has_plain_products),
        site=site_with(profile, "model"),
        levers=tuple(it for it in levers if has_plain_products or it != "matmul-precision"),
    )


def _faster_modes(profile: Profile) -> tuple[str, ...]:
    """What the hardware multiplies natively, and faster than float32 as a rule; the one to prefer first."""
    wanted = ("bfloat16", "float16", "tf32") if profile.on_accelerator else ("bfloat16",)
    native = native_dtypes(profile.situation)
    return tuple(it for it in wanted if it in native)


def _rates(profile: Profile) -> Mapping[str, float]:
    """Operations per second by format, as measured on the device that the script trains on."""
    kind = profile.facts.device.partition(":")[0]
    measured = profile.machine.ceilings.matmul_flops_per_second
    return {key.partition(":")[2]: rate for key, rate in measured if key.partition(":")[0] == kind and rate > 0}


def _part_saved(row: OperatorRow, best: str, modes: tuple[str, ...], rates: Mapping[str, float]) -> float:
    """Which part of an operator's time the rates would save: all of it where they were not measured, but nothing where
    it runs in a faster mode already."""
    now = _runs_in(row, modes)
    if now in rates and best in rates:
        return max(0.0, 1 - rates[now] / rates[best])
    return 1.0 if now == "float32" else 0.0


def _runs_in(row: OperatorRow, modes: tuple[str, ...]) -> str:
    """What float32 inputs are multiplied in: cuDNN, which computes convolutions and recurrent layers, takes
    TensorFloat-32 unless it is forbidden."""
    return "tf32" if "tf32" in modes and not (is_product(row) or is_attention(row)) else "float32"


def _title(share: float, saving: float, best: str, *, measured: bool) -> str:
    start = f"Products of float32 matrices take {percent(share)} of the step"
    if measured:
        return f"{start}; at the rates measured here, {best} would save at most {percent(saving)} of the step."
    return f"{start}, on hardware that multiplies {best} faster."


def _rates_in_words(modes: tuple[str, ...], rates: Mapping[str, float]) -> Iterator[str]:
    text = ", ".join(f"{it} {rates[it] / 1e12:.3g}" for it in ("float32", *modes) if it in rates)
    if text:
        yield f"Rates that this device reached in a test, in TFLOP/s: {text}."


def _remedy(profile: Profile, modes: tuple[str, ...], has_plain_products: bool) -> str:
    kind = profile.facts.device.partition(":")[0]
    if kind == "cpu":
        return (
            'Run forward and loss under `torch.autocast("cpu", dtype=torch.bfloat16)`, or call '
            '`torch.set_float32_matmul_precision("medium")` once at the start.'
        )
    if "bfloat16" not in modes:
        return f'Run forward and loss under `torch.autocast("{kind}", dtype=torch.float16)` with a gradient scaler.'
    autocast = f'Run forward and loss under `torch.autocast("{kind}", dtype=torch.bfloat16)`'
    if "tf32" not in modes or not has_plain_products:
        return f"{autocast}."
    return f'{autocast}, or call `torch.set_float32_matmul_precision("high")` at the start, which keeps more digits.'


_LINEAR = operator("aten::addmm", 40, [(3072,), (8192, 768), (768, 3072)])
_BACKWARD = operator("aten::mm", 30, [(8192, 3072), (3072, 768)])
_CONVOLUTION = operator("aten::convolution_backward", 40, [(64, 256, 28, 28), (64, 128, 28, 28), (256, 128, 3, 3)])
_ELEMENTWISE = operator("aten::gelu", 20, [(8192, 3072)])
_ON_GPU = run_on(GPU, _LINEAR, _BACKWARD, _ELEMENTWISE)
_WITHOUT_RATES = msgspec.structs.replace(GPU, ceilings=Ceilings())
_NO_FASTER_HERE = msgspec.structs.replace(
    CPU, ceilings=Ceilings(matmul_flops_per_second=(("cpu:bfloat16", 4.9e11), ("cpu:float32", 5.0e11)))
)

fires = {
    "float32 products on a GPU": _ON_GPU,
    "no rate was measured": run_on(_WITHOUT_RATES, _LINEAR, _BACKWARD, _ELEMENTWISE),
    "a processor that multiplies bfloat16": run_on(CPU, _LINEAR, _BACKWARD, _ELEMENTWISE),
    "convolutions in TensorFloat-32, which 16 bits could halve": run_on(GPU, _CONVOLUTION, _ELEMENTWISE),
}
silent = {
    "nothing was measured": Profile(),
    "autocast is in use": run_on(GPU, _LINEAR, _BACKWARD, autocast_dtype="bfloat16"),
    "TensorFloat-32 is allowed": run_on(GPU, _LINEAR, _BACKWARD, matmul_precision="high"),
    "the products are in bfloat16": run_on(GPU, operator("aten::mm", 70, [(512, 512), (512, 512)], "c10::BFloat16")),
    "the products are in float64": run_on(GPU, operator("aten::mm", 70, [(512, 512), (512, 512)], "double")),
    "types were not recorded": run_on(GPU, operator("aten::mm", 70)),
    "products are a small part": run_on(GPU, operator("aten::mm", 4, [(512, 512), (512, 512)]), _ELEMENTWISE),
    "the GPU waits for the host": run_on(GPU, operator("aten::mm", 15, [(512, 512), (512, 512)])),
    "the processor has no faster format": run_on(Machine(cores=8, native_dtypes=("float32",)), _LINEAR, _BACKWARD),
    "the other format is no faster when measured": run_on(_NO_FASTER_HERE, _LINEAR, _BACKWARD),
    "convolutions in TensorFloat-32, and no rates": run_on(_WITHOUT_RATES, _CONVOLUTION, _ELEMENTWISE),
}
