"""Small profiled runs, of which the rules about operators make their examples. Not a rule itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hotlap.diagnose.profile import Profile
from hotlap.evidence import RunEvidence, Window
from hotlap.records import Accelerator, Ceilings, Machine, ModelFacts, PhaseAccount, ScriptFacts, Steps
from hotlap.trace.records import (
    Breakdown,
    Coverage,
    DeviceBreakdown,
    DeviceTime,
    Idle,
    KernelRow,
    KernelSummary,
    OperatorRow,
    StepTime,
    TraceFacts,
)

STEPS = 10
STEP_SECONDS = 0.1
"""A step of these examples takes a tenth of a second, so a millisecond is one percent of it."""

GPU = Machine(
    cores=8,
    accelerators=(
        Accelerator(
            kind="cuda",
            name="A GPU",
            memory_bytes=80 << 30,
            capability="9.0",
            native_dtypes=("float32", "float16", "tf32", "bfloat16"),
        ),
    ),
    ceilings=Ceilings(
        matmul_flops_per_second=(
            ("cuda:bfloat16", 6.0e14),
            ("cuda:float16", 6.0e14),
            ("cuda:float32", 5.0e13),
            ("cuda:tf32", 3.0e14),
        ),
        memory_bytes_per_second=3.0e12,
    ),
)
CPU = Machine(
    cores=8,
    native_dtypes=("float32", "bfloat16"),
    ceilings=Ceilings(
        matmul_flops_per_second=(("cpu:bfloat16", 2.0e12), ("cpu:float32", 5.0e11)),
        memory_bytes_per_second=5.0e10,
    ),
)


def operator(
    name: str,
    milliseconds: float,
    shapes: Iterable[tuple[int, ...]] = (),
    dtype: str = "float",
    *,
    calls: int = 1,
    place: str = "",
) -> OperatorRow:
    """An operator that takes so long of each step, on the host and on the device alike, ``calls`` times a step."""
    inputs = tuple(shapes)
    nanoseconds = round(milliseconds * 1e6 * STEPS)
    return OperatorRow(
        name=name,
        shapes=inputs,
        types=tuple(dtype if it else "Scalar" for it in inputs),
        calls=calls * STEPS,
        host_nanoseconds=nanoseconds,
        device_nanoseconds=nanoseconds,
        place=place,
    )


def run_on(machine: Machine, *operators: OperatorRow, model: ModelFacts | None = None, **facts: Any) -> Profile:
    """A profiled run on a machine's accelerator, or on its processor where it has none."""
    device = "cuda" if machine.accelerators else "cpu"
    seen = model or ModelFacts(kind="Net", parameters=1_000_000, trainable=50, device=device)
    return Profile(
        facts=ScriptFacts(device=device, models=(seen,), **facts),
        machine=machine,
        account=PhaseAccount(wall=STEP_SECONDS, forward=0.03, backward=0.06, optimizer=0.01),
        operators=operators,
        evidence=RunEvidence(
            observed_steps=100,
            observed_seconds=100 * STEP_SECONDS,
            window=Window(first_step=90, steps=STEPS, wall_seconds=STEPS * STEP_SECONDS, trace_path="trace.json"),
        ),
    )


def with_optimizer(profile: Profile, seconds: float) -> Profile:
    """The same run with an optimizer that takes so long of each of its steps, and the rest computing."""
    account = PhaseAccount(wall=STEP_SECONDS, backward=STEP_SECONDS - seconds, optimizer=seconds)
    steps = Steps(
        wall_seconds=(STEP_SECONDS,) * 40,
        backward_seconds=(STEP_SECONDS - seconds,) * 40,
        optimizer_seconds=(seconds,) * 40,
    )
    return msgspec.structs.replace(profile, account=account, steps=steps)


def with_kernels(profile: Profile, milliseconds: Mapping[str, float]) -> Profile:
    """The same run with a trace of kernels, by name, that take so long of each step one after the other, ten a step."""
    kernels = tuple(_kernel(name, round(it * 1e6) * STEPS) for name, it in milliseconds.items())
    busy, window = sum(it.nanoseconds for it in kernels), round(STEP_SECONDS * 1e9) * STEPS
    time = DeviceTime(
        window_nanoseconds=window,
        busy_nanoseconds=busy,
        compute_nanoseconds=busy,
        communication_nanoseconds=0,
        exposed_communication_nanoseconds=0,
        copy_nanoseconds=0,
        memset_nanoseconds=0,
        memory_nanoseconds=0,
        events=sum(it.launches for it in kernels),
    )
    lengths = window // STEPS
    steps = tuple(
        StepTime(number=it, start_nanoseconds=it * lengths, nanoseconds=lengths, loader_nanoseconds=0)
        for it in range(STEPS)
    )
    summary = KernelSummary(
        kernels=time.events,
        distinct=len(kernels),
        nanoseconds=busy,
        short_kernels=0,
        short_nanoseconds=0,
        launch_cost_nanoseconds=None,
        per_step=time.events / STEPS,
    )
    device = DeviceBreakdown(
        device=0,
        name="A GPU",
        start_nanoseconds=0,
        time=time,
        in_steps=time,
        steps=steps,
        streams=(),
        copies=(),
        kernels=kernels,
        kernel_summary=summary,
        idle=Idle(nanoseconds=window - busy, gaps=0),
    )
    breakdown = Breakdown(
        facts=TraceFacts(path="trace.json"),
        coverage=Coverage(bytes_read=0, events=0),
        host_nanoseconds=window,
        steps=steps,
        devices=(device,),
    )
    return msgspec.structs.replace(profile, breakdowns=(breakdown,))


def _kernel(name: str, nanoseconds: int) -> KernelRow:
    launches = 10 * STEPS
    return KernelRow(
        name=name,
        kind="kernel",
        launches=launches,
        nanoseconds=nanoseconds,
        shortest_nanoseconds=nanoseconds // launches,
        longest_nanoseconds=nanoseconds // launches,
    )
