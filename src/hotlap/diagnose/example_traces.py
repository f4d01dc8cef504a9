"""A small trace for the examples of rules about idle devices. Not a rule itself."""

from __future__ import annotations

from hotlap.traces.records import (
    Breakdown,
    Cause,
    CopyRow,
    Coverage,
    DeviceBreakdown,
    DeviceTime,
    Idle,
    IdleCause,
    KernelSummary,
    StepTime,
    TraceFacts,
)

STEPS = 10
STEP_SECONDS = 0.1
"""A step of these examples takes a tenth of a second, so a millisecond is one percent of it."""


def trace_of(*causes: IdleCause, kernels: KernelSummary | None = None, copies: tuple[CopyRow, ...] = ()) -> Breakdown:
    """Make ten steps of 100 ms in which a device idled for these causes and was busy otherwise."""
    window = round(STEPS * STEP_SECONDS * 1e9)
    idle = sum(it.nanoseconds for it in causes)
    time = DeviceTime(
        window_nanoseconds=window,
        busy_nanoseconds=window - idle,
        compute_nanoseconds=window - idle,
        communication_nanoseconds=0,
        exposed_communication_nanoseconds=0,
        copy_nanoseconds=0,
        memset_nanoseconds=0,
        memory_nanoseconds=0,
        events=1000,
    )
    steps = tuple(
        StepTime(
            number=it,
            start_nanoseconds=it * window // STEPS,
            nanoseconds=window // STEPS,
            loader_nanoseconds=0,
            kernels=100,
        )
        for it in range(STEPS)
    )
    device = DeviceBreakdown(
        device=0,
        name="A GPU",
        start_nanoseconds=0,
        time=time,
        in_steps=time,
        steps=steps,
        streams=(),
        copies=copies,
        kernels=(),
        kernel_summary=kernels or many_kernels(short_share=0.0),
        idle=Idle(nanoseconds=idle, gaps=sum(it.gaps for it in causes), causes=causes),
    )
    return Breakdown(
        facts=TraceFacts(path="trace.json"),
        coverage=Coverage(bytes_read=1, events=1000, device_events=1000),
        host_nanoseconds=window,
        steps=steps,
        devices=(device,),
    )


def idle_for(cause: Cause, milliseconds: float, *, in_operators: float = 0.0) -> IdleCause:
    """Make a cause that keeps the device idle for so long in each step.

    For the part ``in_operators`` of that time the host was inside operators.
    """
    nanoseconds = round(milliseconds * 1e6 * STEPS)
    return IdleCause(
        cause=cause,
        nanoseconds=nanoseconds,
        gaps=100,
        longest_nanoseconds=nanoseconds // 50,
        host_operator_nanoseconds=round(nanoseconds * in_operators),
    )


def many_kernels(*, short_share: float) -> KernelSummary:
    """Make a thousand kernels, this share of which is shorter than a kernel launch."""
    return KernelSummary(
        kernels=1000,
        distinct=20,
        nanoseconds=10_000_000,
        short_kernels=round(1000 * short_share),
        short_nanoseconds=round(3_000_000 * short_share),
        launch_cost_nanoseconds=6000,
        per_step=100.0,
    )
