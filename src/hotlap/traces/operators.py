"""Time by operator: self time on the host, and that of the kernels that it launched itself."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hotlap.traces.attribution import Attribution, Direction
from hotlap.traces.dialects import uses_tensor_cores
from hotlap.traces.inputs import shapes_and_types
from hotlap.traces.reader import read_trace
from hotlap.traces.records import OperatorRow
from hotlap.traces.timeline import NONE, Timeline


def operators(
    timeline: Timeline, *, most: int | None = None, attribution: Attribution | None = None
) -> tuple[OperatorRow, ...]:
    """All operators by name, inputs and place, those with most device time first, then those with most host time.

    Where the trace marks steps, only operators that began between the first one's start and the last one's end. A
    timeline that was read without operators' inputs is read once more from its file, which raises :class:`TraceError`
    when that is gone. ``most`` bounds the rows; ``attribution`` is the timeline's own, where it was made before.
    """
    if not timeline.with_inputs:
        timeline, attribution = read_trace(timeline.facts.path, with_inputs=True), None
    return tuple(_rows(attribution or Attribution(timeline))[:most])


class _Key(NamedTuple):
    """The key of equal operators, as indices."""

    name: int
    inputs: int
    place: str


def _rows(attribution: Attribution) -> list[OperatorRow]:
    alike: defaultdict[_Key, list[int]] = defaultdict(list)
    table, scopes = attribution.timeline.operators, attribution.scopes
    on_tensor_cores = _on_tensor_cores(attribution)
    first, last = attribution.in_steps
    for event, start in enumerate(table.start):
        if first <= start < last:
            alike[_Key(table.name[event], table.inputs[event], scopes[event].place)].append(event)
    steps = _steps_with(attribution.timeline, alike)
    found = [
        _row(attribution, key, events, on_tensor_cores, steps.get((key.name, key.place), 0))
        for key, events in alike.items()
    ]
    return sorted(found, key=lambda it: (-it.device_nanoseconds, -it.host_nanoseconds))


def _steps_with(timeline: Timeline, alike: Mapping[_Key, Sequence[int]]) -> dict[tuple[int, str], int]:
    """The number of marked steps in which operators of a name began at a place."""
    starts = [it.start for it in timeline.steps]
    met: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for key, events in alike.items():
        met[key.name, key.place].update(bisect_right(starts, timeline.operators.start[it]) for it in events)
    return {key: len(steps) for key, steps in met.items()} if starts else {}


def _on_tensor_cores(attribution: Attribution) -> Counter[int]:
    """For each operator the time of the kernels it launched that run on tensor cores by their names."""
    device = attribution.timeline.device
    names = device.named(uses_tensor_cores)
    found: Counter[int] = Counter()
    for event, (start, end, name) in enumerate(zip(device.start, device.end, device.name, strict=True)):
        if name in names:
            found[attribution.launch_of(event).operator] += end - start
    return found


def _row(
    attribution: Attribution, key: _Key, events: list[int], on_tensor_cores: Counter[int], steps: int
) -> OperatorRow:
    timeline = attribution.timeline
    shapes, types = shapes_and_types(timeline.inputs[key.inputs]) if key.inputs != NONE else ((), ())
    return OperatorRow(
        name=timeline.operators.names[key.name],
        shapes=shapes,
        types=types,
        calls=len(events),
        host_nanoseconds=sum(attribution.own_nanoseconds[it] for it in events),
        longest_nanoseconds=max(attribution.own_nanoseconds[it] for it in events),
        device_nanoseconds=sum(attribution.device_nanoseconds[it] for it in events),
        tensor_core_nanoseconds=sum(on_tensor_cores[it] for it in events),
        place=key.place,
        backward_calls=sum(attribution.scopes[it].direction != Direction.FORWARD for it in events),
        forward_place=_forward_place(attribution, events),
        flops=max(timeline.operators.flops[it] for it in events),
        steps=steps,
    )


def _forward_place(attribution: Attribution, events: list[int]) -> str:
    """The line whose gradients most of the events compute; empty if unknown."""
    scopes = (attribution.scopes[it] for it in events)
    lines = Counter(it.line for it in scopes if it.direction == Direction.BACKWARD and it.line != NONE)
    return attribution.lines.names[lines.most_common(1)[0][0]] if lines else ""
