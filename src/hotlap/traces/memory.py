"""Memory over time, from the changes that torch's allocators report to a profiler (``profile_memory=True``).

For the peak: its time, the operator that ran, and the allocations in use.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import pairwise
from statistics import median

from hotlap.traces.events import MISSING
from hotlap.traces.memory_records import MemoryOverTime, MemoryPeak, PeakAllocation, StepMemory
from hotlap.traces.moments import Moment, Moments
from hotlap.traces.timeline import Allocations, Step, Timeline

_SAMPLES = 120
_MOST_DEVICES = 64
_LOOKED_INTO = 2000
"""Of the allocations in use at the peak, how many of the largest are attributed to what allocated them."""

_HOLDERS_KEPT = 20
_FEWEST_STEPS = 3
_HOST = 0
_UNKNOWN = Moment("unknown")


def memory_use(timeline: Timeline) -> tuple[MemoryOverTime, ...]:
    """Sum each accelerator's allocations; the host's if no accelerator reports any. Empty for a trace
    without memory, and for one that was read without operators' inputs. An allocator that never held more than at its
    first change is left out where the trace gives no totals."""
    table = timeline.allocations
    found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event, kind in enumerate(zip(table.device_type, table.device, strict=True)):
        found[kind].append(event)
    accelerators = sorted(it for it in found if it[0] not in (_HOST, MISSING))
    shown = accelerators or sorted(it for it in found if it[0] == _HOST)
    moments = Moments(timeline)
    uses = ((it, _Use(timeline, moments, found[it])) for it in shown[:_MOST_DEVICES])
    return tuple(use.row(device, on_host=kind == _HOST) for (kind, device), use in uses if use.is_known)


class _Use:
    """The changes of one allocator, and what was allocated after each."""

    def __init__(self, timeline: Timeline, moments: Moments, events: Sequence[int]) -> None:
        self.timeline = timeline
        self.moments = moments
        self.events = events
        table = timeline.allocations
        self.times = [table.start[it] for it in events]
        self.absolute = table.allocated[events[0]] != MISSING
        self.first = table.allocated[events[0]] - table.change[events[0]] if self.absolute else 0
        self.levels = list(_levels(table, events, self.first))
        self.highest = max(range(len(self.levels)), key=self.levels.__getitem__)

    @property
    def is_known(self) -> bool:
        """Whether there is a peak: without totals, memory that was only freed is not known to have been in use."""
        return self.absolute or self.levels[self.highest] > 0

    def row(self, device: int, *, on_host: bool) -> MemoryOverTime:
        reserved = [
            it for it in self.timeline.allocations.of(self.events, self.timeline.allocations.reserved) if it > 0
        ]
        steps = tuple(map(self._step, self.timeline.steps))
        changes = [after.end_bytes - before.end_bytes for before, after in pairwise(steps)]
        held_before, holders = self._holders()
        return MemoryOverTime(
            device=device,
            on_host=on_host,
            absolute=self.absolute,
            changes=len(self.events),
            start_nanoseconds=self.times[0],
            nanoseconds=self.times[-1] - self.times[0],
            peak=self._peak(),
            peak_reserved_bytes=max(reserved, default=None),
            samples=tuple(self._samples()),
            steps=steps,
            growth_bytes_per_step=round(median(changes)) if len(steps) >= _FEWEST_STEPS else None,
            grows_every_step=len(steps) >= _FEWEST_STEPS and all(it > 0 for it in changes),
            held_before_bytes=held_before,
            holders=holders,
        )

    def _peak(self) -> MemoryPeak:
        table, event, time = self.timeline.allocations, self.events[self.highest], self.times[self.highest]
        here = self.moments.at(time, table.thread[event])
        reserved = table.reserved[event]
        return MemoryPeak(
            start_nanoseconds=time,
            allocated_bytes=self.levels[self.highest],
            reserved_bytes=reserved if reserved > 0 else None,
            step=next((it.number for it in self.timeline.steps if it.start <= time < it.end), None),
            phase=here.phase,
            operator=here.operator,
            module=here.module,
            place=here.place,
        )

    def _step(self, step: Step) -> StepMemory:
        begun, ended = bisect_left(self.times, step.start), bisect_right(self.times, step.end)
        before = self.levels[begun - 1] if begun else self.first
        return StepMemory(
            number=step.number,
            peak_bytes=max(before, max(self.levels[begun:ended], default=before)),
            end_bytes=self.levels[ended - 1] if ended else self.first,
        )

    def _samples(self) -> Iterator[int]:
        """The most in each part of the window, also of what was allocated before it."""
        start, length = self.times[0], self.times[-1] - self.times[0]
        begun, level = 0, self.first
        for part in range(1, _SAMPLES + 1):
            ended = bisect_right(self.times, start + length * part // _SAMPLES)
            yield max(level, max(self.levels[begun:ended], default=level))
            level = self.levels[ended - 1] if ended else level
            begun = ended

    def _holders(self) -> tuple[int | None, tuple[PeakAllocation, ...]]:
        """Memory in use at the peak: allocated before the trace, and since then by operator."""
        table = self.timeline.allocations
        in_use: dict[int, int] = {}
        for event in self.events[: self.highest + 1]:
            address = table.address[event]
            if address == MISSING:
                return None, ()
            if table.change[event] > 0:
                in_use[address] = event
            else:
                in_use.pop(address, None)
        sizes = table.change.__getitem__
        largest = nlargest(_LOOKED_INTO, in_use.values(), key=sizes)
        alike: defaultdict[Moment, list[int]] = defaultdict(list)
        for event in largest:
            alike[self.moments.at(table.start[event], table.thread[event])].append(sizes(event))
        rest = set(in_use.values()) - set(largest)
        alike[_UNKNOWN] += map(sizes, rest)
        holders = [
            PeakAllocation(
                bytes=sum(of),
                allocations=len(of),
                phase=it.phase,
                operator=it.operator,
                module=it.module,
                place=it.place,
            )
            for it, of in alike.items()
            if of
        ]
        since = sum(map(sizes, in_use.values()))
        ranked = sorted(holders, key=lambda it: -it.bytes)
        return max(0, self.levels[self.highest] - since), tuple(ranked[:_HOLDERS_KEPT])


def _levels(table: Allocations, events: Sequence[int], level: int) -> Iterator[int]:
    """The bytes allocated after each change: as recorded, else the sum of the changes."""
    for event in events:
        written = table.allocated[event]
        level = written if written != MISSING else level + table.change[event]
        yield level
