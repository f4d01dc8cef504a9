"""Kernels that only convert images between memory formats take time in every step.

## What it is
cuDNN's convolutions on tensor cores need images with channels last in memory. If the model is channels first, cuDNN
converts inputs and outputs around such a convolution, in separate kernels.

## Why it is slow
A conversion reads and writes the whole image tensor and computes nothing. Each convolution may need two of them forward
and more backward, while the convolution itself is fast.

## How to see it
`hotlap trace` lists kernels by name; those that convert are called `nchwToNhwcKernel` and `nhwcToNchwKernel`.

## What to do
Keep images channels last everywhere: `model.to(memory_format=torch.channels_last)` once, and
`images.to(memory_format=torch.channels_last)` for each batch. Shapes and indices stay as they are.

## When it is fine
If most of the model has no channels-last kernel (some normalisations and most three-dimensional layers), since then
other layers would have to convert.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotlap.diagnose.device_idle import traced_device
from hotlap.diagnose.examples import CPU, GPU, run_on, with_kernels
from hotlap.diagnose.operators import WORTH_A_LOOK, device_busy_share, kernels_matter, profiled_steps, site_with
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, computing_share, exactly, is_material
from hotlap.diagnose.wording import count, levers_for, name, percent
from hotlap.records import Estimate, Finding, ModelFacts
from hotlap.traces.records import KernelRow

title = "Images are converted between memory formats in every step"
group = "compute"

_CONVERSION = re.compile(r"nchw_?(?:to|2)_?nhwc|nhwc_?(?:to|2)_?nchw", re.IGNORECASE)
_NANOSECONDS = 1e-9
_FULL = 0.9
"""From this busy share on, a kernel's share of the device's time equals the step's saving."""


def check(profile: Profile) -> Iterator[Finding]:
    """Only on an accelerator: on a CPU, oneDNN converts inside its convolutions, which cannot be measured
    separately."""
    device, steps = traced_device(profile), profiled_steps(profile)
    if device is None or not steps or profile.account.wall <= 0 or not kernels_matter(profile):
        return
    rows = [it for it in device.kernels if _CONVERSION.search(it.name)]
    seconds = sum(it.nanoseconds for it in rows) * _NANOSECONDS / steps
    value = min(seconds / profile.account.wall, computing_share(profile))
    share = exactly(value) if device_busy_share(profile) >= _FULL else at_most(value)
    if not rows or not _is_worth_saying(share):
        return
    launches = sum(it.launches for it in rows)
    converted = any(it.channels_last for it in profile.facts.models)
    yield Finding(
        rule="layout-conversions",
        share=share,
        title=f"Converting images between memory formats keeps the GPU busy for {percent(value)} of the step.",
        evidence=(
            f"{count(round(launches / steps), 'kernel')} per step, most of them {name(max(rows, key=_time).name)}.",
            f"The model's weights are {'channels last already' if converted else 'channels first'}.",
        ),
        remedy=_AFTER if converted else _BEFORE,
        site=site_with(profile, "model"),
        levers=levers_for("layout-conversions", profile.situation),
    )


_BEFORE = (
    "Call `model.to(memory_format=torch.channels_last)` once and give it batches that are "
    "`images.to(memory_format=torch.channels_last)`; best together with 16-bit autocast."
)
_AFTER = (
    "Some code passes tensors with channels first: convert the batches with "
    "`images.to(memory_format=torch.channels_last)`, and look for `.contiguous()`, `.view` and concatenations inside "
    "the model."
)


def _is_worth_saying(share: Estimate) -> bool:
    return is_material(share) or share.value >= WORTH_A_LOOK


def _time(row: KernelRow) -> int:
    return row.nanoseconds


def _converting(busy_milliseconds: float, conversion_milliseconds: float, *, channels_last: bool = False) -> Profile:
    """A GPU's run whose steps keep it busy so long, and part of that converting."""
    model = ModelFacts(kind="Net", parameters=1, convolutions=20, device="cuda", channels_last=channels_last)
    return with_kernels(
        run_on(GPU, model=model),
        {
            "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32": busy_milliseconds - conversion_milliseconds,
            "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float>": conversion_milliseconds,
        },
    )


fires = {
    "a busy GPU converts": _converting(95, 12),
    "the model is channels last, but its inputs are not": _converting(95, 4, channels_last=True),
    "a GPU with pauses converts a lot": _converting(70, 15),
}
silent = {
    "nothing was measured": Profile(),
    "a processor": run_on(CPU, model=ModelFacts(kind="Net", parameters=1, convolutions=20)),
    "hardly any conversion": _converting(95, 1.5),
    "some conversion on a GPU with pauses": _converting(70, 4),
    "the GPU waits for the host": _converting(30, 12),
}
