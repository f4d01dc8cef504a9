"""A trace file as a :class:`Timeline`: read, put in order, linked, and accounted for to the last event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hotlap.errors import TraceError
from hotlap.trace.columns import ColumnBuilder
from hotlap.trace.dialects import GRAPH_LAUNCH, STEP_NAME, Kind
from hotlap.trace.document import Reading, TraceDocument
from hotlap.trace.events import MISSING
from hotlap.trace.intervals import Times
from hotlap.trace.records import Coverage, TraceFacts
from hotlap.trace.source import ByteSource
from hotlap.trace.timeline import NONE, Column, DeviceEvents, HostEvents, Steps, Timeline, is_kind

_MOST_OTHER_KINDS = 20
_MOST_DEVICES = 1024
_LONGEST_FACT = 400


def read_trace(path: Path | str) -> Timeline:
    """Read a trace of torch.profiler, as JSON or gzip, of any version, whole or truncated.

    Memory grows with the number of events (about 50 bytes each), not with the file. Raises :class:`TraceError` for a
    file that is no trace, or that holds no event of torch.profiler.
    """
    path = Path(path)
    builder = ColumnBuilder()
    with ByteSource(path) as source:
        document = TraceDocument(source)
        for batch in document.batches():
            builder.add(batch)
    facts = _facts(path, document.surroundings())
    host_columns = builder.host_columns()
    device_columns = builder.device_columns()
    if not len(host_columns["start"]) and not len(device_columns["start"]):
        raise _nothing_found(path, document.reading, builder.invalid)
    names = tuple(builder.numbering.names)
    host = HostEvents(**{name: host_columns[name] for name in HostEvents.__slots__})
    steps = _steps(host, names)
    launch = _launches(device_columns["correlation"], host_columns)
    device = DeviceEvents(
        **{name: device_columns[name] for name in DeviceEvents.__slots__ if name in device_columns},
        launch=launch,
        step=_steps_of(steps, _moments(device_columns["start"], launch, host.start)),
    )
    return Timeline(
        facts=facts,
        coverage=_coverage(document.reading, source.remark, builder, device, host, names),
        device=device,
        host=host,
        steps=steps,
        names=names,
        threads=tuple(builder.numbering.threads),
        stacks=tuple(builder.numbering.stacks),
    )


def _launches(correlation: Column, host: dict[str, Column]) -> Column:
    """For each device event the first host call with its correlation. All kernels of a graph share its launch call."""
    calls = np.flatnonzero(is_kind(host["kind"], Kind.CALL) & (host["correlation"] != MISSING))
    launch = np.full(len(correlation), NONE, dtype=np.int32)
    if not len(calls):
        return launch
    order = calls[np.argsort(host["correlation"][calls], kind="stable")]
    known = host["correlation"][order]
    place = np.searchsorted(known, correlation, side="left")
    found = np.minimum(place, len(known) - 1)
    linked = (known[found] == correlation) & (correlation != MISSING)
    launch[linked] = order[found[linked]]
    return launch


def _moments(start: Times, launch: Column, call_start: Times) -> Times:
    """When each device event was launched; when it started, where that is unknown."""
    moments = start.copy()
    linked = launch != NONE
    moments[linked] = call_start[launch[linked]]
    return moments


def _steps(host: HostEvents, names: tuple[str, ...]) -> Steps:
    """The step marks on the host. Several threads may carry the same step: the longest mark counts."""
    numbers = {index: int(found[1][:15]) for index, it in enumerate(names) if (found := STEP_NAME.match(it))}
    marks = np.flatnonzero(np.isin(host.name, list(numbers)) & is_kind(host.kind, Kind.ANNOTATION, Kind.OPERATOR))
    longest: dict[int, int] = {}
    for mark in marks:
        number = numbers[int(host.name[mark])]
        known = longest.get(number)
        if known is None or host.end[mark] - host.start[mark] > host.end[known] - host.start[known]:
            longest[number] = int(mark)
    chosen = np.array(sorted(longest.values(), key=lambda it: (int(host.start[it]), it)), dtype=np.int64)
    number_of = np.array([numbers[int(host.name[it])] for it in chosen], dtype=np.int64)
    return Steps(number=number_of, start=host.start[chosen], end=host.end[chosen])


def _steps_of(steps: Steps, moments: Times) -> Column:
    """The index of the step that each moment lies in, or :data:`NONE`."""
    if not len(steps):
        return np.full(len(moments), NONE, dtype=np.int32)
    index = np.searchsorted(steps.start, moments, side="right") - 1
    inside = (index >= 0) & (moments < steps.end[np.maximum(index, 0)])
    return np.where(inside, index, NONE).astype(np.int32)


def _coverage(
    reading: Reading,
    remark: str,
    builder: ColumnBuilder,
    device: DeviceEvents,
    host: HostEvents,
    names: tuple[str, ...],
) -> Coverage:
    linked = int((device.launch != NONE).sum())
    graph_names = [index for index, it in enumerate(names) if GRAPH_LAUNCH.match(it)]
    graph_launches = np.flatnonzero(np.isin(host.name, graph_names) & is_kind(host.kind, Kind.CALL))
    with_work = np.isin(graph_launches, device.launch)
    other = [(category[:_LONGEST_FACT], count) for category, count in builder.other.most_common()]
    return Coverage(
        bytes_read=reading.bytes_read,
        events=reading.events,
        device_events=len(device),
        host_events=len(host),
        other_events=builder.other.total(),
        invalid_events=builder.invalid,
        unreadable_events=reading.unreadable,
        repaired_events=reading.repaired,
        linked_events=linked,
        unlinked_events=len(device) - linked,
        graph_launches=len(graph_launches),
        graph_launches_without_kernels=int((~with_work).sum()),
        other=tuple(other[:_MOST_OTHER_KINDS]),
        ended_early=reading.ended_early,
        remark=remark,
    )


def _facts(path: Path, surroundings: dict[str, Any]) -> TraceFacts:
    """What stands around the events, as far as it has the shape that it should have."""
    distributed = surroundings.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = surroundings.get("deviceProperties")
    devices = devices[:_MOST_DEVICES] if isinstance(devices, list) else []
    return TraceFacts(
        path=str(path),
        name=_text(surroundings.get("traceName")),
        base_nanoseconds=_integer(surroundings.get("baseTimeNanoseconds")) or 0,
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        device_names=tuple(_text(it.get("name")) for it in devices if isinstance(it, dict)),
    )


def _text(value: object) -> str:
    return value[:_LONGEST_FACT] if isinstance(value, str) else ""


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63 else None


def _nothing_found(path: Path, reading: Reading, invalid: int) -> TraceError:
    if reading.events == 0:
        what = "The trace holds no events"
        if reading.ended_early:
            what += f" that can be read: {reading.ended_early}"
    elif invalid or reading.unreadable:
        what = f"None of the trace's {reading.events} events can be used: {invalid} have no sensible time, "
        what += f"{reading.unreadable} cannot be read"
    else:
        what = f"The file holds {reading.events} events, but none of a kind that torch.profiler writes"
    return TraceError(f"{what}.", where=str(path), remedy="Export the trace with torch.profiler again.")
