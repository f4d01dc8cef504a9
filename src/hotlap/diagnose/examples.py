"""Small profiled runs for the examples of rules about operators. Not a rule itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hotlap.diagnose.example_traces import STEP_SECONDS, STEPS, trace_of
from hotlap.diagnose.profile import Profile
from hotlap.evidence import RunEvidence, Window
from hotlap.records import (
    Accelerator,
    Ceilings,
    Machine,
    ModelFacts,
    PhaseAccount,
    ScriptFacts,
    SizedRate,
    Steps,
)
from hotlap.traces.records import IdleCause, KernelRow, OperatorRow


def sized_rates(kind: str, conversion_seconds: float, **by_format: tuple[float, ...]) -> tuple[SizedRate, ...]:
    """Make rates of each format for sides of 16, 64, 256, 1024 and 4096, as far as given.

    ``conversion_seconds`` is the time to convert a matrix of the smallest side; from a side of 256 on, it grows with
    the area.
    """
    return tuple(
        SizedRate(
            key=f"{kind}:{dtype}",
            side=side,
            flops_per_second=rate,
            conversion_seconds=0.0 if dtype in ("float32", "tf32") else conversion_seconds * max(1, (side / 128) ** 2),
        )
        for dtype, rates in sorted(by_format.items())
        for side, rate in zip((16, 64, 256, 1024, 4096), rates, strict=False)
    )


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
        matmul_by_size=sized_rates(
            "cuda",
            4e-6,
            bfloat16=(2e9, 1.3e11, 8.0e12, 3.5e14, 6.0e14),
            float16=(2e9, 1.3e11, 8.0e12, 3.5e14, 6.0e14),
            float32=(2e9, 1.3e11, 7.0e12, 4.5e13, 5.0e13),
            tf32=(2e9, 1.3e11, 8.0e12, 2.0e14, 3.0e14),
        ),
        memory_bytes_per_second=3.0e12,
    ),
)
CPU = Machine(
    cores=8,
    native_dtypes=("float32", "bfloat16"),
    ceilings=Ceilings(
        matmul_flops_per_second=(("cpu:bfloat16", 2.0e12), ("cpu:float32", 5.0e11)),
        matmul_by_size=sized_rates(
            "cpu", 2e-6, bfloat16=(2e9, 4e10, 1.2e12, 2.0e12), float32=(8e9, 8e10, 5.0e11, 5.0e11)
        ),
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
    """Make an operator that takes so long per step, on host and device, in ``calls`` calls."""
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
    """Make a profiled run on the machine's accelerator, or on its CPU if it has none."""
    device = "cuda" if machine.accelerators else "cpu"
    seen = model or ModelFacts(kind="Net", parameters=1_000_000, trainable=50, device=device)
    return Profile(
        facts=ScriptFacts(device=device, models=(seen,), **facts),
        machine=machine,
        account=PhaseAccount(
            wall=STEP_SECONDS,
            phases=(
                ("forward", 0.03),
                ("backward", 0.06),
                ("optimizer", 0.01),
            ),
        ),
        operators=operators,
        evidence=RunEvidence(
            observed_steps=100,
            observed_seconds=100 * STEP_SECONDS,
            window=Window(first_step=90, steps=STEPS, wall_seconds=STEPS * STEP_SECONDS, trace_path="trace.json"),
        ),
    )


def with_optimizer(profile: Profile, seconds: float) -> Profile:
    """Make the same run with an optimizer that takes so long per step."""
    account = PhaseAccount(
        wall=STEP_SECONDS,
        phases=(
            ("backward", STEP_SECONDS - seconds),
            ("optimizer", seconds),
        ),
    )
    steps = Steps(
        wall_seconds=(STEP_SECONDS,) * 40,
        phases=(
            ("backward", (STEP_SECONDS - seconds,) * 40),
            ("optimizer", (seconds,) * 40),
        ),
    )
    return msgspec.structs.replace(profile, account=account, steps=steps)


def with_kernels(profile: Profile, milliseconds: Mapping[str, float]) -> Profile:
    """Make the same run with a trace of named kernels, ten each per step, one after the other."""
    kernels = tuple(_kernel(name, round(it * 1e6) * STEPS) for name, it in milliseconds.items())
    idle = round(STEP_SECONDS * 1e9) * STEPS - sum(it.nanoseconds for it in kernels)
    breakdown = trace_of(IdleCause(cause="unknown", nanoseconds=idle, gaps=STEPS, longest_nanoseconds=idle // STEPS))
    device = msgspec.structs.replace(breakdown.devices[0], kernels=kernels)
    return msgspec.structs.replace(profile, breakdowns=(msgspec.structs.replace(breakdown, devices=(device,)),))


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
