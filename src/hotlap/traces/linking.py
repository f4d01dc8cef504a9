"""Link device events to the calls and steps that launched them, and to replayed graphs.

A correlation identifier is unique within a process. A file that holds several ranks has each of them several times, so
there each device is first given the process that drives it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hotlap.traces.dialects import GRAPH_LAUNCH
from hotlap.traces.events import MISSING
from hotlap.traces.timeline import NONE, Calls, DeviceEvents, Step

_CallOf: TypeAlias = Mapping[int, int]
"""The first call with each correlation."""


def link(
    device: DeviceEvents,
    calls: Calls,
    steps: tuple[Step, ...],
    processes: Sequence[str],
    split: Mapping[int, int],
) -> None:
    """Give each device event its launch, the first call with its correlation, and the step that contains it.

    All kernels of a graph share its launch call. ``processes`` are those of the threads, by their numbers. ``split``
    holds the original numbers of devices that were renumbered by their track; that is undone unless ranks were merged.
    """
    call_of = _first_calls(calls, range(len(calls)))
    by_process = _by_process(calls, call_of, processes)
    if by_process:
        driving = _driving(device, calls, by_process)
        device.launch = [
            driving[number].get(correlation, NONE)
            for number, correlation in zip(device.device, device.correlation, strict=True)
        ]
    else:
        if split:
            device.device = [split.get(it, it) for it in device.device]
        device.launch = [call_of.get(it, NONE) for it in device.correlation]
    device.launched = [
        start if launch == NONE else calls.start[launch]
        for start, launch in zip(device.start, device.launch, strict=True)
    ]
    device.step = steps_of(steps, device.launched)


def graph_replays(device: DeviceEvents, calls: Calls) -> dict[int, list[int]]:
    """Group device events by the call that launched their graph, in order; requires linked events."""
    launching = calls.named(GRAPH_LAUNCH.match)
    if not launching:
        return {}
    found: dict[int, list[int]] = {call: [] for call, name in enumerate(calls.name) if name in launching}
    for event, launch in enumerate(device.launch):
        if launch in found:
            found[launch].append(event)
    return found


def _first_calls(calls: Calls, selected: Sequence[int]) -> dict[int, int]:
    # From the last call to the first, so that the first one with a correlation is the one that stays.
    found = {calls.correlation[it]: it for it in reversed(selected)}
    found.pop(MISSING, None)
    return found


def _by_process(calls: Calls, call_of: _CallOf, processes: Sequence[str]) -> list[_CallOf]:
    """The first calls of each process, in the order of the file; nothing unless several use the same correlations."""
    if len({processes[it] for it in calls.threads}) < 2:
        return []
    members: defaultdict[str, list[int]] = defaultdict(list)
    for call, thread in enumerate(calls.thread):
        members[processes[thread]].append(call)
    in_file = dict.fromkeys(processes)
    found: list[_CallOf] = [_first_calls(calls, members[it]) for it in in_file if it in members]
    return found if sum(map(len, found)) > len(call_of) else []


def _driving(device: DeviceEvents, calls: Calls, by_process: list[_CallOf]) -> dict[int, _CallOf]:
    """For each device the calls of the process that drives it: the one that may have launched most of its work. Of
    several the next one in the file that drives none yet, since a file holds its ranks in their order."""
    events: defaultdict[int, list[int]] = defaultdict(list)
    for it, number in enumerate(device.device):
        events[number].append(it)
    used = [0] * len(by_process)
    found: dict[int, _CallOf] = {}
    for number, members in sorted(events.items()):
        launched = [_launched(device, calls, members, it) for it in by_process]
        best = max(range(len(by_process)), key=lambda it: (launched[it], -used[it], -it))
        used[best] += 1
        found[number] = by_process[best]
    return found


def _launched(device: DeviceEvents, calls: Calls, members: list[int], call_of: _CallOf) -> int:
    """Count the events that a process may have launched: those that began after its call with their correlation."""
    correlation, start = device.correlation, device.start
    found = ((it, call_of.get(correlation[it], NONE)) for it in members)
    return sum(call != NONE and calls.start[call] <= start[it] for it, call in found)


def steps_of(steps: tuple[Step, ...], moments: Sequence[int]) -> list[int]:
    """The index of the step that contains each moment, or :data:`NONE`."""
    starts = [it.start for it in steps]
    found: list[int] = []
    index, start, end = NONE, 0, 0
    for moment in moments:
        # Usually the step is that of the moment before.
        if not start <= moment < end:
            index = bisect_right(starts, moment) - 1
            start, end = steps[index][1:3] if index >= 0 else (0, 0)
        found.append(index if start <= moment < end else NONE)
    return found
