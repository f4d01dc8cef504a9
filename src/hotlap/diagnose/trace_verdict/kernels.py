"""What a device's kernels show: float32 products, element-wise work that could be fused, or no loss at all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hotlap.diagnose.operators import (
    WORTH_A_LOOK,
    dtype_of,
    in_words,
    is_matrix_work,
    is_wrapper,
    kernels_matter,
    share_of,
)
from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import at_most, exactly
from hotlap.diagnose.trace_verdict.peaks import peak_of
from hotlap.diagnose.trace_verdict.profile import Capability, capability_of, native_dtypes_of
from hotlap.diagnose.wording import count, duration, flop_rate, levers_for, name, percent
from hotlap.records import Finding
from hotlap.traces.records import Breakdown, DeviceBreakdown, KernelRow, OperatorRow

_SHOWN = 3
_BILLION = 1e9
_TERA = 1e12
_NOTABLE_ELEMENTWISE = 0.1

_NOT_FLOAT32 = re.compile(r"half|bf16|bfloat16|_f16|double|f64|dgemm|zgemm|cgemm|gemv|int8|s8_", re.IGNORECASE)
"""Kernels on ordinary units in other formats, and products with a vector, which memory limits."""

_ATTENTION = re.compile(r"flash|fmha", re.IGNORECASE)
_ATTENTION_IN_FLOAT32 = re.compile(r"fmha_cutlass[fb]_f32", re.IGNORECASE)
_ELEMENTWISE = re.compile(r"elementwise_kernel")
_FUSED = re.compile(r"^triton_")


def precision_findings(profile: Profile, breakdown: Breakdown, device: DeviceBreakdown) -> Iterator[Finding]:
    """Products and convolutions in float32 on a device with a faster format, by the names of kernels and, where
    they were recorded, the types of operators' inputs."""
    capability = capability_of(breakdown, device)
    native = native_dtypes_of(device.name, capability)
    best = next((it for it in ("bfloat16", "float16") if it in native), None)
    if best is None or not kernels_matter(profile):
        return
    kernels = [it for it in device.kernels if _is_float32_product(it)]
    operators = [it for it in profile.operators if _has_float32_inputs(it)]
    share = sum(it.nanoseconds for it in kernels) / max(1, device.time.window_nanoseconds)
    if "tf32" not in native:
        # Without TensorFloat-32, float32 inputs are multiplied in float32, whatever the kernel is called.
        share = max(share, min(share_of(profile, operators), _computing_share(device)))
    saved = share * (1 - _ratio(device.name))
    if saved < WORTH_A_LOOK:
        return
    yield Finding(
        rule="slow-matmul-precision",
        share=at_most(saved),
        title=f"Products and convolutions in float32 take {percent(share)} of the step, and the device multiplies "
        f"{best} faster.",
        evidence=tuple(_precision_evidence(device, kernels, operators, best, capability)),
        remedy=_remedy(native),
        levers=levers_for("slow-matmul-precision"),
    )


def _is_float32_product(row: KernelRow) -> bool:
    if row.tensor_cores is not False or _NOT_FLOAT32.search(row.name):
        return False
    return not _ATTENTION.search(row.name) or _ATTENTION_IN_FLOAT32.search(row.name) is not None


def _has_float32_inputs(row: OperatorRow) -> bool:
    return is_matrix_work(row) and not is_wrapper(row) and dtype_of(row) == "float32"


def _computing_share(device: DeviceBreakdown) -> float:
    return device.time.compute_nanoseconds / max(1, device.time.window_nanoseconds)


def _ratio(device: str) -> float:
    """Return the faster format's minimum time as a share of float32's; 0 without published rates."""
    peak = peak_of(device)
    return peak.float32 / peak.half if peak else 0.0


def _precision_evidence(
    device: DeviceBreakdown,
    kernels: Sequence[KernelRow],
    operators: Sequence[OperatorRow],
    best: str,
    capability: Capability | None,
) -> Iterator[str]:
    yield from _kernel_lines(kernels[:_SHOWN], "not on tensor cores")
    if operators:
        longest = max(operators, key=lambda it: it.device_nanoseconds)
        yield f"inputs recorded as float32: {in_words(longest)} and {count(len(operators) - 1, 'other')}"
    peak = peak_of(device.name)
    if peak is not None:
        rates = f"{flop_rate(peak.float32 * _TERA)} in float32, {flop_rate(peak.half * _TERA)} in {best}"
        yield f"published peak rates of {name(device.name)}: {rates}"
    elif capability is not None and device.name:
        major, minor = capability
        yield f"{name(device.name)} has matrix units (compute capability {major}.{minor})"


def _remedy(native: Sequence[str]) -> str:
    if "bfloat16" not in native:
        return (
            'Use mixed precision: run forward and loss under `torch.autocast("cuda", dtype=torch.float16)`, in '
            "training with `torch.amp.GradScaler`. This device has no bfloat16 and no TensorFloat-32."
        )
    autocast = 'run forward and loss under `torch.autocast("cuda", dtype=torch.bfloat16)`'
    if "tf32" not in native:
        return f"Use mixed precision: {autocast}."
    return (
        f'Use mixed precision: {autocast}; or call `torch.set_float32_matmul_precision("high")` at the start, which '
        "multiplies in TensorFloat-32 and keeps more digits."
    )


def elementwise_finding(device: DeviceBreakdown) -> Iterator[Finding]:
    """Yield eager torch's element-wise kernels; none if kernels are fused already."""
    rows = [it for it in device.kernels if _ELEMENTWISE.search(it.name)]
    share = sum(it.nanoseconds for it in rows) / max(1, device.time.window_nanoseconds)
    if share < _NOTABLE_ELEMENTWISE or any(_FUSED.search(it.name) for it in device.kernels):
        return
    launches = sum(it.launches for it in rows)
    yield Finding(
        rule="unfused-kernels",
        share=at_most(share),
        title=f"Element-wise kernels, each of which reads and writes its tensors again, take {percent(share)} of "
        "the step.",
        evidence=(f"{count(launches, 'launch', 'launches')} of {count(len(rows), 'kernel')}", *_kernel_lines(rows[:2])),
        remedy="Compile the model (`torch.compile`), which fuses chains of them into one kernel.",
    )


def computing_finding(device: DeviceBreakdown) -> Finding:
    """Yield what the device computes, if nothing else is worth reporting."""
    busy = device.time.busy_nanoseconds
    rows = device.kernels[:_SHOWN]
    most = sum(it.nanoseconds for it in rows) / max(1, busy)
    return Finding(
        rule="computing",
        kind="hint",
        share=exactly(0.0),
        title=f"The device computes {percent(_computing_share(device))} of the step, and no other cost is large.",
        evidence=(
            f"the {count(len(rows), 'longest kernel')} take {percent(min(1.0, most))} of the busy time",
            *_kernel_lines(rows),
        ),
        remedy="Only fewer or faster kernels make it shorter: compile the model (`torch.compile`), use fused attention "
        "and a fused optimizer, or compute less.",
    )


def _kernel_lines(rows: Sequence[KernelRow], remark: str = "") -> Iterator[str]:
    for it in rows:
        launches = count(it.launches, "launch", "launches")
        line = f"{name(it.name)}: {duration(it.nanoseconds / _BILLION)} in {launches}"
        yield f"{line}, {remark}" if remark else line
