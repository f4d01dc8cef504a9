"""Floating-point operations of the steps, on the terminal: how many, how fast, and which part of the peak."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.diagnose.trace_verdict import StepWork
from hotlap.diagnose.wording import flop_rate
from hotlap.render import text
from hotlap.render.lines import Paper, paragraph, styled


def work_lines(work: StepWork | None, paper: Paper) -> Iterator[str]:
    """The sentences; nothing if too little is known."""
    if work is None:
        return
    yield styled("Floating-point operations", "bold", paper)
    for line in (_amount(work), _rate(work), _known(work)):
        yield from paragraph(line, paper, indent=2)
    yield ""


def _amount(work: StepWork) -> str:
    of = "per step" if work.steps else "in the trace"
    amount = f"{'At least ' if work.is_lower_bound else ''}{_flops(work.flops_per_step)} {of}"
    if not work.backward_flops:
        return f"{amount}."
    forward = _flops(work.flops_per_step - work.backward_flops_per_step)
    return f"{amount}: {forward} forward, {_flops(work.backward_flops_per_step)} backward."


def _rate(work: StepWork) -> str:
    devices = f" on {work.devices} devices" if work.devices > 1 else ""
    line = f"{'At least ' if work.is_lower_bound else ''}{flop_rate(work.flops_per_second)}{devices}"
    peaks = [f"{flop_rate(it.peak_flops_per_second)} in {it.dtype}" for it in work.dtypes if it.peak_flops_per_second]
    if len(peaks) < len(work.dtypes):
        return f"{line}; no published peak is known for this device and these dtypes."
    if work.peak_share is None:
        return f"{line}, more than the published peak of this device, so no share of it is given: {text.listed(peaks)}."
    share = text.share(work.peak_share)
    return f"{line}, {share} of the dense peak that the manufacturer publishes (MFU): {text.listed(peaks)}."


def _known(work: StepWork) -> str:
    return (
        f"FLOPs are known for {text.share(work.known_matrix_share)} of the time of matrix kernels and "
        f"{text.share(work.known_kernel_share)} of the time of all kernels."
    )


def _flops(count: float) -> str:
    return text.rate(count, "FLOP").removesuffix("/s")
