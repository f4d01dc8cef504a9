"""A trace file as a :class:`Timeline`: read, put in order, linked, and accounted for to the last event."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from hotlap.errors import TraceError
from hotlap.traces.columns import ColumnBuilder
from hotlap.traces.dialects import STEP_NAME
from hotlap.traces.document import Reading, Surroundings, TraceDocument
from hotlap.traces.events import MISSING, UNREADABLE, decoder
from hotlap.traces.linking import graph_replays, link
from hotlap.traces.records import Coverage, TraceFacts
from hotlap.traces.source import ByteSource
from hotlap.traces.timeline import NONE, DeviceEvents, HostEvents, Step, Timeline

_MOST_OTHER_KINDS = 20
_MOST_DEVICES = 1024
_LONGEST_FACT = 400
_LONGEST_VALUE = 2**20


def read_trace(path: Path | str, *, with_inputs: bool = False) -> Timeline:
    """Read a trace of torch.profiler, as JSON or gzip, of any version, whole or truncated.

    ``with_inputs`` also reads the shapes and types that operators were called with, modules, how kernels were launched,
    what collectives send and what allocators report, which takes longer. Memory grows with the number of events (some
    300 bytes each), not with the file. Raises :class:`TraceError` for a file that is no trace, or that holds no event
    of torch.profiler.
    """
    path = Path(path)
    builder = ColumnBuilder(with_inputs=with_inputs)
    with ByteSource(path) as source:
        document = TraceDocument(source, decoder(with_inputs=with_inputs))
        for batch in document.batches():
            builder.add(batch)
    facts = _facts(path, document.surroundings())
    builder.finish()
    if not len(builder.device) and not builder.host_events:
        raise _nothing_found(path, document.reading, builder.invalid)
    steps = _steps(builder.annotations)
    processes = [process for process, _ in builder.threads]
    link(builder.device, builder.calls, steps, processes, builder.split_devices)
    return Timeline(
        facts=facts,
        coverage=_coverage(document.reading, source.remark, builder),
        device=builder.device,
        calls=builder.calls,
        operators=builder.operators,
        annotations=builder.annotations,
        frames=builder.frames,
        overhead=builder.overhead,
        allocations=builder.allocations,
        steps=steps,
        threads=tuple(builder.threads),
        stacks=tuple(builder.stacks),
        inputs=tuple(builder.inputs),
        messages=tuple(builder.messages),
        with_inputs=with_inputs,
        modules=builder.modules,
        configurations=tuple(builder.configurations),
    )


def _steps(annotations: HostEvents) -> tuple[Step, ...]:
    """The step marks on the host. Several threads may carry the same step: the longest mark counts."""
    numbers = {
        index: int(found[1][:15]) for index, it in enumerate(annotations.names) if (found := STEP_NAME.match(it))
    }
    longest: dict[int, Step] = {}
    for event, name in enumerate(annotations.name):
        if name in numbers:
            number = numbers[name]
            mark = Step(number, annotations.start[event], annotations.end[event], annotations.thread[event])
            known = longest.get(number)
            if known is None or mark.end - mark.start > known.end - known.start:
                longest[number] = mark
    return tuple(sorted(longest.values(), key=lambda it: it.start))


def _coverage(reading: Reading, remark: str, builder: ColumnBuilder) -> Coverage:
    device = builder.device
    unlinked = device.launch.count(NONE)
    replays = graph_replays(device, builder.calls)
    other = [(category[:_LONGEST_FACT], count) for category, count in builder.other.most_common()]
    return Coverage(
        bytes_read=reading.bytes_read,
        events=reading.events,
        device_events=len(device),
        host_events=builder.host_events,
        other_events=builder.other.total(),
        invalid_events=builder.invalid,
        unreadable_events=reading.unreadable,
        repaired_events=reading.repaired,
        linked_events=len(device) - unlinked,
        unlinked_events=unlinked,
        graph_launches=len(replays),
        graph_launches_without_kernels=sum(not it for it in replays.values()),
        graph_launches_in_part=_recorded_in_part(device, replays.values()),
        other=tuple(other[:_MOST_OTHER_KINDS]),
        ended_early=reading.ended_early,
        remark=remark,
    )


def _recorded_in_part(device: DeviceEvents, replays: Iterable[list[int]]) -> int:
    """How many replays have fewer events than another replay of the same graph: each runs all of the graph's nodes."""
    sizes: defaultdict[int, list[int]] = defaultdict(list)
    for events in replays:
        if events and device.graph[events[0]] != MISSING:
            sizes[device.graph[events[0]]].append(len(events))
    return sum(size < max(counts) for counts in sizes.values() for size in counts)


def _facts(path: Path, surroundings: Surroundings) -> TraceFacts:
    """Read the values around the events that have the expected shape."""
    distributed = _value(surroundings.distributed)
    distributed = distributed if isinstance(distributed, dict) else {}
    devices = _value(surroundings.devices)
    devices = devices[:_MOST_DEVICES] if isinstance(devices, list) else []
    return TraceFacts(
        path=str(path),
        name=_text(_value(surroundings.name)),
        base_nanoseconds=_integer(_value(surroundings.base_nanoseconds)) or 0,
        rank=_integer(distributed.get("rank")),
        world_size=_integer(distributed.get("world_size")),
        device_names=tuple(_text(it.get("name")) for it in devices if isinstance(it, dict)),
        device_ids=tuple(_integer(it.get("id")) for it in devices if isinstance(it, dict)),
        device_capabilities=tuple(_capability(it) for it in devices if isinstance(it, dict)),
    )


def _value(text: msgspec.Raw) -> Any:
    """A value next to the events; None if it is absent or implausibly large."""
    written = bytes(text)
    if not written or len(written) > _LONGEST_VALUE:
        return None
    try:
        return msgspec.json.decode(written)
    except UNREADABLE:
        return None


def _capability(device: dict[str, Any]) -> str:
    major, minor = (_integer(device.get(it)) for it in ("computeMajor", "computeMinor"))
    return "" if major is None or minor is None else f"{major}.{minor}"


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
