"""Reduce a study, or the traces of a run, to a side that can be compared."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from hotlap.compare.records import Account, Amount, Fact, Side
from hotlap.measure.account import warm_up_steps
from hotlap.records import STEP_PHASES, Machine, PhaseAccount, Study
from hotlap.redact import redacted
from hotlap.traces.records import Breakdown, DeviceBreakdown, DeviceTime, HostTime, OperatorRow, StepTime

_SECONDS = 1e-9


def side_of_traces(
    path: str,
    breakdowns: Sequence[Breakdown],
    operators: Sequence[OperatorRow] = (),
    host_time: HostTime | None = None,
) -> Side:
    """Make a side of the traces of one run: one, several ranks, or several stretches of steps.

    ``operators`` and ``host_time`` are those of the first trace. Raises :class:`ValueError` without a trace.
    """
    if not breakdowns:
        raise ValueError("A side needs a trace.")
    steps = _step_seconds(breakdowns)
    return Side(
        path=path,
        kind="trace",
        seconds=_mean_step(breakdowns),
        step_seconds=steps,
        marks_steps=bool(steps),
        profiled=True,
        traced_seconds=_mean_step(breakdowns),
        traced_step_seconds=steps,
        on_device=any(it.devices for it in breakdowns),
        accounts=_traced_accounts(breakdowns, operators, host_time),
        facts=tuple(_trace_facts(breakdowns)),
        doubts=tuple(_doubts(path, breakdowns)),
    )


def side_of_study(
    path: str,
    study: Study,
    breakdowns: Sequence[Breakdown] = (),
    operators: Sequence[OperatorRow] = (),
    host_time: HostTime | None = None,
) -> Side:
    """Make a side of a study's unmodified script, with the traces of its profiled steps if it has any.

    Raises :class:`ValueError` if the study has no time account.
    """
    account = study.account_before
    if account is None or account.wall <= 0:
        raise ValueError("A side needs a time account.")
    steps = study.baseline.steps if study.baseline is not None else None
    settled = steps.wall_seconds[warm_up_steps(steps) :] if steps is not None else ()
    traced_steps = _step_seconds(breakdowns)
    return Side(
        path=path,
        kind="study",
        title=_command(study),
        seconds=account.wall,
        step_seconds=settled,
        traced_seconds=_mean_step(breakdowns) if traced_steps else 0.0,
        traced_step_seconds=traced_steps,
        samples_per_step=account.samples_per_step,
        on_device=_on_device(study, breakdowns),
        others_share=_others_share(study),
        accounts=(_phases(account), *(_traced_accounts(breakdowns, operators, host_time) if traced_steps else ())),
        findings=study.findings,
        observed=study.profiled_steps > 0,
        plan=study.plan,
        gain=study.verification.speed.speedup if study.verification is not None else None,
        facts=tuple(_study_facts(study)),
        doubts=tuple(_doubts(path, breakdowns)),
    )


# ---------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------


def _step_seconds(breakdowns: Sequence[Breakdown]) -> tuple[float, ...]:
    """The seconds of each step: of the slowest rank, or of all traces one after the other."""
    rows = [_lengths(it.steps) for it in breakdowns]
    if _are_ranks(breakdowns):
        return tuple(map(max, zip(*rows, strict=False)))
    return tuple(it for row in rows for it in row)


def _on_device(study: Study, breakdowns: Sequence[Breakdown]) -> bool | None:
    """Whether an accelerator worked, according to the trace, else to the script's reported device."""
    if breakdowns:
        return any(it.devices for it in breakdowns)
    device = study.baseline.facts.device if study.baseline is not None else ""
    return not device.startswith("cpu") if device else None


def _others_share(study: Study) -> float:
    run = study.baseline
    blocks = run.blocks[run.warm_up_blocks :] if run is not None else ()
    cores = max(1, study.machine.visible_cores or study.machine.cores)
    return fmean(it.other_load for it in blocks) / cores if blocks else 0.0


def _lengths(steps: Sequence[StepTime]) -> list[float]:
    """From the start of each step to the start of the next; the last by its own length. They add up to the window."""
    starts = [it.start_nanoseconds for it in steps]
    nexts = [*starts[1:], steps[-1].start_nanoseconds + steps[-1].nanoseconds] if steps else []
    return [(end - start) * _SECONDS for start, end in zip(starts, nexts, strict=True)]


def _mean_step(breakdowns: Sequence[Breakdown]) -> float:
    """The mean step, or the length of the whole trace if no steps are marked."""
    steps = _step_seconds(breakdowns)
    if steps:
        return fmean(steps)
    windows = [device.time.window_nanoseconds for it in breakdowns for device in it.devices]
    return fmean(windows or [it.host_nanoseconds for it in breakdowns]) * _SECONDS if breakdowns else 0.0


def _are_ranks(breakdowns: Sequence[Breakdown]) -> bool:
    ranks = [it.facts.rank for it in breakdowns]
    return len(ranks) > 1 and None not in ranks and len(set(ranks)) == len(ranks)


# ---------------------------------------------------------------------------------------------
# Accounts
# ---------------------------------------------------------------------------------------------


def _phases(account: PhaseAccount) -> Account:
    amounts = [Amount(name=it, seconds=account.seconds_in(it)) for it in STEP_PHASES]
    return Account(table="phases", amounts=tuple(amounts))


def _traced_accounts(
    breakdowns: Sequence[Breakdown], operators: Sequence[OperatorRow], host_time: HostTime | None
) -> tuple[Account, ...]:
    """Device time, causes of idle time and kernels, as means over devices; else host time and operators."""
    devices = [device for it in breakdowns for device in it.devices]
    if devices:
        return (_device(devices), _idle(devices), _kernels(devices))
    if not breakdowns or not breakdowns[0].steps:
        return ()
    steps = breakdowns[0].steps
    host = _host(host_time, len(steps)) if host_time is not None else _loader_and_rest(steps)
    return (host, _operators(operators, len(steps))) if operators else (host,)


def _device(devices: Sequence[DeviceBreakdown]) -> Account:
    """Disjoint parts that add up to the step."""
    sums: dict[str, float] = defaultdict(float)
    for device in devices:
        for name, nanoseconds in _parts(device.in_steps or device.time):
            sums[name] += nanoseconds * _SECONDS / _steps_of(device) / len(devices)
    return Account(table="device", amounts=tuple(Amount(name=name, seconds=it) for name, it in sums.items()))


def _parts(time: DeviceTime) -> Iterator[tuple[str, int]]:
    yield "compute", time.compute_nanoseconds
    yield "exposed_communication", time.exposed_communication_nanoseconds
    yield "copies", time.exposed_copy_nanoseconds
    yield "idle", time.idle_nanoseconds


def _idle(devices: Sequence[DeviceBreakdown]) -> Account:
    found = _Sums(len(devices))
    for device in devices:
        for cause in device.idle.causes:
            found.add(cause.cause, cause.nanoseconds, cause.gaps, _steps_of(device))
    return Account(table="idle", amounts=found.amounts())


def _kernels(devices: Sequence[DeviceBreakdown]) -> Account:
    found = _Sums(len(devices))
    for device in devices:
        for row in device.kernels:
            found.add(row.name, row.nanoseconds, row.launches, _steps_of(device))
    return Account(
        table="kernels", amounts=found.amounts(), unknown_below_seconds=max(map(_shortest_known, devices), default=0.0)
    )


def _shortest_known(device: DeviceBreakdown) -> float:
    """Seconds per step below which kernels may be missing: a table holds only the longest. 0: it is complete."""
    rows = [it for it in device.kernels if it.kind == "kernel"]
    if len(rows) >= device.kernel_summary.distinct:
        return 0.0
    return min((it.nanoseconds for it in device.kernels), default=0) * _SECONDS / _steps_of(device)


def _host(time: HostTime, steps: int) -> Account:
    parts = ("loader", "sync", "operator", "python")
    amounts = [Amount(name=it, seconds=getattr(time, f"{it}_nanoseconds") * _SECONDS / steps) for it in parts]
    return Account(table="host", amounts=tuple(amounts))


def _loader_and_rest(steps: Sequence[StepTime]) -> Account:
    """The parts of host time that are known for the steps themselves."""
    loader = fmean(it.loader_nanoseconds for it in steps) * _SECONDS
    rest = fmean(_lengths(steps)) - loader
    return Account(table="host", amounts=(Amount(name="loader", seconds=loader), Amount(name="rest", seconds=rest)))


def _operators(operators: Iterable[OperatorRow], steps: int) -> Account:
    """Operators by name, so that changed shapes do not look like removed and added operators."""
    found = _Sums(1)
    for row in operators:
        found.add(row.name, row.host_nanoseconds, row.calls, steps)
    return Account(table="operators", amounts=found.amounts())


class _Sums:
    """Sums of times and counts by name, as means over ``parts`` devices."""

    def __init__(self, parts: int) -> None:
        self._parts = max(1, parts)
        self._seconds: dict[str, float] = defaultdict(float)
        self._counts: dict[str, float] = defaultdict(float)

    def add(self, name: str, nanoseconds: int, count: int, steps: int) -> None:
        self._seconds[name] += nanoseconds * _SECONDS / steps / self._parts
        self._counts[name] += count / steps / self._parts

    def amounts(self) -> tuple[Amount, ...]:
        return tuple(Amount(name=it, seconds=self._seconds[it], count=self._counts[it]) for it in self._seconds)


def _steps_of(device: DeviceBreakdown) -> int:
    return max(1, len(device.steps))


# ---------------------------------------------------------------------------------------------
# Facts
# ---------------------------------------------------------------------------------------------


def _trace_facts(breakdowns: Sequence[Breakdown]) -> Iterator[Fact]:
    names = sorted({device.name for it in breakdowns for device in it.devices if device.name})
    if names:
        yield Fact(kind="machine", name="accelerators", text=", ".join(names))
    yield Fact(kind="setting", name="ranks", text=str(breakdowns[0].facts.world_size or len(breakdowns)))


def _study_facts(study: Study) -> Iterator[Fact]:
    yield Fact(kind="script", name="command", text=_command(study))
    yield from _machine_facts(study.machine)
    if study.hotlap_version:
        yield Fact(kind="version", name="hotlap", text=study.hotlap_version)
    if study.baseline is not None:
        seen = study.baseline.facts
        yield Fact(kind="setting", name="device", text=seen.device)
        yield Fact(kind="setting", name="ranks", text=str(seen.processes))
        yield Fact(kind="setting", name="threads", text=str(seen.threads))
        workers = sorted({str(it.workers) for it in seen.loaders})
        yield Fact(kind="setting", name="loader workers", text=", ".join(workers))
        yield Fact(kind="setting", name="autocast", text=seen.autocast_dtype)


def _machine_facts(machine: Machine) -> Iterator[Fact]:
    names = sorted({it.name for it in machine.accelerators})
    for name, text in (
        ("processor", machine.processor),
        ("cores", str(machine.cores)),
        ("accelerators", ", ".join(names)),
    ):
        if text:
            yield Fact(kind="machine", name=name, text=text)
    drivers = sorted({it.driver for it in machine.accelerators if it.driver})
    versions = (("Python", machine.python_version), ("driver", ", ".join(drivers)), *machine.library_versions)
    for name, text in versions:
        if text:
            yield Fact(kind="version", name=name, text=text)
    for name, text in machine.environment:
        yield Fact(kind="setting", name=name, text=text)


def _command(study: Study) -> str:
    it = redacted(study.workload)
    return shlex.join([*(("-m",) if it.kind == "module" else ()), it.target, *it.arguments])


def _doubts(path: str, breakdowns: Sequence[Breakdown]) -> Iterator[str]:
    for it in breakdowns:
        if it.unreliable:
            yield f"The trace {it.facts.path or path} is unreliable: {it.unreliable}."
        if it.coverage.ended_early:
            yield f"The trace {it.facts.path or path} is incomplete: {it.coverage.ended_early}."
