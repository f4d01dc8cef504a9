"""Breakdowns and studies as small as a comparison needs them."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.records import (
    Accelerator,
    Block,
    Finding,
    Machine,
    PhaseAccount,
    Run,
    ScriptFacts,
    Steps,
    Study,
    Workload,
)
from hotlap.traces.records import (
    Breakdown,
    Cause,
    Coverage,
    DeviceBreakdown,
    DeviceTime,
    Idle,
    IdleCause,
    KernelRow,
    KernelSummary,
    StepTime,
    TraceFacts,
)

MS = 1_000_000


def kernel(name: str, launches: int, milliseconds: float) -> KernelRow:
    """This many launches with this total time, over all steps of a trace."""
    return KernelRow(
        name=name,
        kind="kernel",
        launches=launches,
        nanoseconds=round(milliseconds * MS),
        shortest_nanoseconds=1,
        longest_nanoseconds=round(milliseconds * MS),
    )


def breakdown(
    step_ms: Sequence[float],
    *,
    compute_ms: float = 0.0,
    exposed_ms: float = 0.0,
    copies_ms: float = 0.0,
    causes: dict[Cause, float] | None = None,
    kernels: Sequence[KernelRow] = (),
    distinct: int | None = None,
    rank: int | None = None,
    name: str = "A GPU",
    unreliable: str = "",
    marks_steps: bool = True,
    devices: int = 1,
) -> Breakdown:
    """Steps of these lengths; the other times are sums over all of them, and the rest is idle."""
    window = round(sum(step_ms) * MS)
    busy = round((compute_ms + exposed_ms + copies_ms) * MS)
    time = DeviceTime(
        window_nanoseconds=window,
        busy_nanoseconds=busy,
        compute_nanoseconds=round(compute_ms * MS),
        communication_nanoseconds=round(exposed_ms * MS),
        exposed_communication_nanoseconds=round(exposed_ms * MS),
        copy_nanoseconds=round(copies_ms * MS),
        memset_nanoseconds=0,
        memory_nanoseconds=round(copies_ms * MS),
        events=10,
    )
    steps = _steps(step_ms) if marks_steps else ()
    idle = tuple(
        IdleCause(cause=cause, nanoseconds=round(it * MS), gaps=2 * len(step_ms), longest_nanoseconds=1)
        for cause, it in (causes or {}).items()
    )
    device = DeviceBreakdown(
        device=0,
        name=name,
        start_nanoseconds=0,
        time=time,
        in_steps=time if marks_steps else None,
        steps=steps,
        streams=(),
        copies=(),
        kernels=tuple(kernels),
        kernel_summary=KernelSummary(
            kernels=sum(it.launches for it in kernels),
            distinct=len(kernels) if distinct is None else distinct,
            nanoseconds=0,
            short_kernels=0,
            short_nanoseconds=0,
            launch_cost_nanoseconds=None,
            per_step=None,
        ),
        idle=Idle(nanoseconds=time.idle_nanoseconds, gaps=1, causes=idle),
    )
    return Breakdown(
        facts=TraceFacts(path="trace.json", rank=rank),
        coverage=Coverage(bytes_read=1, events=10),
        host_nanoseconds=window,
        steps=steps,
        devices=(device,) * devices,
        unreliable=unreliable,
    )


def _steps(step_ms: Sequence[float]) -> tuple[StepTime, ...]:
    starts = [round(sum(step_ms[:index]) * MS) for index in range(len(step_ms))]
    return tuple(
        StepTime(number=number, start_nanoseconds=start, nanoseconds=round(length * MS), loader_nanoseconds=0)
        for number, (start, length) in enumerate(zip(starts, step_ms, strict=True))
    )


def study(
    step_seconds: Sequence[float] = (0.1,) * 40,
    *,
    data_wait: float = 0.0,
    samples: float = 32.0,
    findings: Sequence[Finding] = (),
    profiled_steps: int = 40,
    processor: str = "A CPU",
    torch: str = "2.13.0",
    device: Accelerator | None = None,
    command: Sequence[str] = (),
    other_load: float = 0.0,
    environment: Sequence[tuple[str, str]] = (),
) -> Study:
    """A finished profile; ``data_wait`` is seconds of each step, the rest of it is forward."""
    mean = sum(step_seconds) / len(step_seconds)
    return Study(
        kind="profile",
        status="finished",
        workload=Workload(kind="script", target="train.py", arguments=tuple(command), directory="/", python="python"),
        machine=Machine(
            processor=processor,
            cores=8,
            accelerators=(device,) if device else (),
            library_versions=(("torch", torch),),
            environment=tuple(environment),
        ),
        baseline=Run(
            facts=ScriptFacts(threads=4),
            steps=Steps(wall_seconds=tuple(step_seconds)),
            blocks=tuple(
                Block(steps=8, samples=256, wall_seconds=1.0, other_load=load)
                for load in (99.0, other_load, other_load)
            ),
            warm_up_blocks=1,
        ),
        account_before=PhaseAccount(
            wall=mean,
            phases=(
                ("data_wait", data_wait),
                ("forward", mean - data_wait),
            ),
            samples_per_step=samples,
        ),
        findings=tuple(findings),
        profiled_steps=profiled_steps,
    )
