"""Why a device was idle: classify each gap by what the host and the device were doing.

A gap is the time between the end of all earlier events and the start of the next one. Its cause follows from the launch
of that next event.

*Queued.* It had been launched before the gap began: the device had work. A gap shorter than 30
microseconds is the usual turn from one kernel to the next; a longer one next to a collective is communication, and any
other is unknown.

*Host late.* It was launched within the gap: the device waited for the host. The time that the issuing threads spent
inside the data loader, compilation or capture, initialisation, a collective's host part, or the profiler's own work is
attributed to those, in this order. The rest goes to one cause: to a host sync or a blocking copy when the host returned
from waiting for the device within the gap, since that had emptied the queue, or when a call that copies
fills half of the gap; else to the time between steps when a step began in it; else the host simply issued work more
slowly than the device finished it: launch-bound.

*Unlinked.* The trace holds no launch of the next event. A stream runs its work in the order in which it was launched,
so the launches of its neighbours show whether it was queued. If they do not, the gap is treated as if the host had been
late, and is launch-bound only where operators and calls fill half of it; else it is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import nlargest
from operator import itemgetter, sub
from typing import NamedTuple

from hotlap.traces.dialects import copy_direction, is_collective
from hotlap.traces.hosts import HostActivity, Wait
from hotlap.traces.intervals import Intervals, held, nothing, overlaps, subtraction, union
from hotlap.traces.records import Cause, Evidence, Gap, Idle, IdleCause
from hotlap.traces.timeline import NONE, Selection, Timeline
from hotlap.traces.usage import KERNEL_WAIT_BELOW

CAUSES: tuple[Cause, ...] = (
    "data_loader",
    "capture_or_compile",
    "initialisation",
    "communication",
    "profiler",
    "host_sync",
    "blocking_copy",
    "between_steps",
    "launch_bound",
    "queued",
    "unknown",
)
_RANK = {cause: rank for rank, cause in enumerate(CAUSES)}

GAPS_LOOKED_INTO = 40
"""The number of longest gaps per cause that are examined for evidence."""

GAPS_KEPT = 20
_EVIDENCE_KEPT = 5


class _Parts(NamedTuple):
    """The gaps of one cause in the order of time, its time in each, and in how many it is the main cause."""

    gaps: list[int]
    lengths: list[int]
    main: list[int]

    def largest(self, count: int) -> list[tuple[int, int]]:
        """The ``count`` gaps in which the cause has most time, and that time."""
        return nlargest(count, zip(self.gaps, self.lengths, strict=True), key=itemgetter(1))


class _Gaps:
    """The idle gaps of a device as columns, and each cause's time in them.

    A gap is from the end of event ``before`` to the start of event ``after``, which the host issued at ``issued``;
    where that is unknown (``unknown_launches``), at the end of the gap. ``rest`` is the cause of the time that remains
    after ``shared``, which few gaps have; ``waits`` are the waits for the device that ended in it.
    """

    def __init__(self, timeline: Timeline, selected: Selection, activity: HostActivity) -> None:
        self.timeline = timeline
        self.activity = activity
        self.windows = Intervals([], [])
        self.before: list[int] = []
        self.after: list[int] = []
        self.waits: dict[int, Wait] = {}
        self._step_starts = [it.start for it in timeline.steps]
        self._parts: dict[int, list[tuple[Cause, int]]] = {}
        self._seen: dict[tuple[int, Cause], dict[str, str]] = {}
        self._find(selected)
        self.lengths = list(map(sub, self.windows.ends, self.windows.starts))
        self.unknown_launches: set[int] = set()
        self.issued = self._issued()
        self._copying = held(self.windows, activity.copying) if len(activity.copying) else None
        self.shared = self._shared_host_time()
        self.rest = self._causes_of_rest()

    def parts(self, gap: int) -> list[tuple[Cause, int]]:
        """Each cause's time in a gap, the longest first."""
        if gap not in self.shared:
            return [(self.rest[gap], self.lengths[gap])]
        if gap not in self._parts:
            parts = dict(self.shared[gap])
            rest = self.lengths[gap] - sum(parts.values())
            if rest:
                parts[self.rest[gap]] = parts.get(self.rest[gap], 0) + rest
            self._parts[gap] = sorted(parts.items(), key=lambda it: (-it[1], _RANK[it[0]]))
        return self._parts[gap]

    def by_cause(self) -> dict[Cause, _Parts]:
        """Each cause's time in all gaps. A gap counts for its main cause."""
        unshared: dict[Cause, list[int]] = {it: [] for it in CAUSES}
        for gap, cause in enumerate(self.rest):
            unshared[cause].append(gap)
        if self.shared:
            shared = self.shared
            unshared = {cause: [it for it in gaps if it not in shared] for cause, gaps in unshared.items()}
        lengths = self.lengths.__getitem__
        found = {cause: _Parts(gaps, list(map(lengths, gaps)), gaps[:]) for cause, gaps in unshared.items()}
        for gap in self.shared:
            ranked = self.parts(gap)
            found[ranked[0][0]].main.append(gap)
            for cause, length in ranked:
                found[cause].gaps.append(gap)
                found[cause].lengths.append(length)
        return {cause: parts for cause, parts in found.items() if parts.gaps}

    def seen(self, gap: int, cause: Cause) -> dict[str, str]:
        """What the host did in a gap of a cause, by role."""
        if (gap, cause) not in self._seen:
            self._seen[gap, cause] = self._look_into(gap, cause)
        return self._seen[gap, cause]

    def _look_into(self, gap: int, cause: Cause) -> dict[str, str]:
        timeline, activity, after = self.timeline, self.activity, self.after[gap]
        start, end = self.windows.starts[gap], self.windows.ends[gap]
        if cause in ("queued", "unknown") or self.issued[gap] <= start:
            return {"next_kernel": timeline.device.name_of(after)}
        if cause == "data_loader":
            return {"loader": activity.loader_in(start, end)}
        call = timeline.device.launch[after]
        if cause in ("host_sync", "blocking_copy") and gap in self.waits:
            call = self.waits[gap].call
        elif cause in ("launch_bound", "blocking_copy", "host_sync", "initialisation"):
            filling = activity.call_that_filled(start, end)
            call = call if filling == NONE else filling
        if call == NONE:
            thread, moment = activity.main_thread, (start + end) // 2
        else:
            thread, moment = timeline.calls.thread[call], timeline.calls.start[call]
        return {
            "call": timeline.calls.name_of(call) if call != NONE else "",
            "operator": activity.operator_at(moment, thread),
            "place": activity.place_at(moment, thread),
        }

    def _find(self, selected: Selection) -> None:
        """Find the time without events from the first one's start to the last one's end.

        An event of zero duration ends no gap, unless it is the last one.
        """
        if not selected:
            return
        start, end = self.timeline.device.start, self.timeline.device.end
        found: list[tuple[int, int, int, int]] = []
        last = first_then = selected[0]
        reached = then = start[last]
        for it in selected:
            began, ended = start[it], end[it]
            if began != then:
                then, first_then = began, it
            if ended > began > reached:
                found.append((reached, began, last, first_then))
            elif ended < reached or ended == began > reached:
                continue
            reached, last = ended, it
        if then > reached:
            found.append((reached, then, last, first_then))
        if found:
            starts, ends, before, after = map(list, zip(*found, strict=True))
            self.windows, self.before, self.after = Intervals(starts, ends), before, after

    def _issued(self) -> list[int]:
        """When the host issued the work that ended each gap, or the latest possible time."""
        launched = self.timeline.device.launched
        found = [launched[it] for it in self.after]
        unlinked = [gap for gap, it in enumerate(self.after) if self.timeline.device.launch[it] == NONE]
        if not unlinked:
            return found
        earliest, latest = _launched_around(self.timeline, [self.after[it] for it in unlinked])
        for gap in unlinked:
            after, start = self.after[gap], self.windows.starts[gap]
            if after in latest and latest[after] <= start:
                found[gap] = latest[after]
            else:
                found[gap] = self.windows.ends[gap]
                if earliest.get(after, start) <= start:
                    self.unknown_launches.add(gap)
        return found

    def _shared_host_time(self) -> dict[int, dict[Cause, int]]:
        """Attribute host time to named causes while the device waited. No moment counts twice."""
        activity = self.activity
        found: dict[int, dict[Cause, int]] = {}
        counted = nothing()
        spans: tuple[tuple[Cause, Intervals], ...] = (
            ("data_loader", activity.loader),
            ("capture_or_compile", activity.compilation),
            ("initialisation", activity.initialisation),
            ("communication", activity.communication),
            ("profiler", activity.profiler),
        )
        for cause, these in spans:
            own = subtraction(these, counted)
            for gap, length in overlaps(self.windows, own) if len(own) else ():
                if self.issued[gap] > self.windows.starts[gap]:
                    parts = found.setdefault(gap, {})
                    parts[cause] = parts.get(cause, 0) + length
            counted = union([*counted, *own])
        return found

    def _causes_of_rest(self) -> list[Cause]:
        name, collective = self.timeline.device.name, self.timeline.device.named(is_collective)
        found: list[Cause] = []
        for gap, (start, length, after) in enumerate(zip(self.windows.starts, self.lengths, self.after, strict=True)):
            if self.issued[gap] > start:
                found.append(self._cause_of_late_host(gap, start))
            elif length < KERNEL_WAIT_BELOW:
                found.append("queued")
            else:
                beside_collective = name[after] in collective or name[self.before[gap]] in collective
                found.append("communication" if beside_collective else "unknown")
        return found

    def _cause_of_late_host(self, gap: int, start: int) -> Cause:
        """The cause of the rest of a gap in which the device waited for the host."""
        if gap in self.unknown_launches and self.lengths[gap] < KERNEL_WAIT_BELOW:
            return "unknown"
        ends, issued = self.activity.wait_ends, self.issued[gap]
        last = bisect_right(ends, issued) - 1
        if last >= 0 and ends[last] >= start:
            self.waits[gap] = self.activity.waits[last]
            return "blocking_copy" if self.waits[gap].upload else "host_sync"
        if self._copying is not None and 2 * self._copying[gap] >= self.lengths[gap]:
            return "host_sync" if self._downloads(gap, start) else "blocking_copy"
        steps = self._step_starts
        following = bisect_right(steps, start)
        if following < len(steps) and steps[following] <= issued:
            return "between_steps"
        if gap in self.unknown_launches:
            working = self.activity.operators.within(start, self.windows.ends[gap])
            return "launch_bound" if 2 * working >= self.lengths[gap] else "unknown"
        return "launch_bound"

    def _downloads(self, gap: int, start: int) -> bool:
        """Whether the copy whose call fills a gap, or that ends it, goes from the device to the host."""
        call = self.activity.call_that_filled(start, self.windows.ends[gap])
        ending = copy_direction(self.timeline.device.name_of(self.after[gap]))
        return ending == "DtoH" or (call != NONE and self.activity.downloads(call))


def _launched_around(timeline: Timeline, unlinked: Selection) -> tuple[dict[int, int], dict[int, int]]:
    """Find launches of the nearest earlier and later events in the stream, for events without a launch."""
    events = timeline.device
    wanted = set(unlinked)
    found: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for bounds, order in zip(found, (range(len(events)), range(len(events) - 1, -1, -1)), strict=True):
        known: dict[tuple[int, int], int] = {}
        for it in order:
            stream = events.device[it], events.stream[it]
            if events.launch[it] != NONE:
                known[stream] = events.launched[it]
            elif it in wanted and stream in known:
                bounds[it] = known[stream]
    return found


def explain_idle(timeline: Timeline, selected: Selection, activity: HostActivity) -> Idle:
    """Every gap between the selected events of one device, by cause. ``activity`` is that of the threads which issued
    them."""
    gaps = _Gaps(timeline, selected, activity)
    longest = nlargest(GAPS_KEPT, range(len(gaps.lengths)), key=gaps.lengths.__getitem__)
    return Idle(
        nanoseconds=sum(gaps.lengths),
        gaps=len(gaps.lengths),
        causes=_causes(gaps),
        longest=tuple(_described(gaps, it, origin=timeline.device.start[selected[0]]) for it in longest),
    )


def _causes(gaps: _Gaps) -> tuple[IdleCause, ...]:
    """The causes that have any time, the largest first."""
    found = [
        IdleCause(
            cause=cause,
            nanoseconds=sum(parts.lengths),
            gaps=len(parts.main),
            longest_nanoseconds=max(parts.lengths),
            host_operator_nanoseconds=(
                _within_operators(gaps, sorted(parts.main)) if cause in ("launch_bound", "between_steps") else 0
            ),
            evidence=_evidence(gaps, parts.largest(GAPS_LOOKED_INTO), cause),
        )
        for cause, parts in gaps.by_cause().items()
    ]
    return tuple(sorted(found, key=lambda it: -it.nanoseconds))


def _within_operators(gaps: _Gaps, of: list[int]) -> int:
    """The upper bound of the host's time in operators and calls within the main cause's part of these gaps."""
    starts, ends = gaps.windows.starts, gaps.windows.ends
    within = held(Intervals([starts[it] for it in of], [ends[it] for it in of]), gaps.activity.operators)
    shared = gaps.shared
    # The cause has most of each of them, so its part comes first.
    has = [gaps.parts(it)[0][1] if it in shared else gaps.lengths[it] for it in of]
    return sum(map(min, within, has))


def _evidence(gaps: _Gaps, parts: list[tuple[int, int]], cause: Cause) -> tuple[Evidence, ...]:
    """Sum what was observed in these gaps by name."""
    sums: dict[tuple[str, str], list[int]] = {}
    for gap, length in parts:
        for role, name in gaps.seen(gap, cause).items():
            if name:
                entry = sums.setdefault((role, name), [0, 0])
                entry[0] += 1
                entry[1] += length
    ranked = sorted(sums.items(), key=lambda it: -it[1][1])
    kept: list[Evidence] = []
    for (role, name), (count, length) in ranked:
        if sum(it.role == role for it in kept) < _EVIDENCE_KEPT:
            kept.append(Evidence(role=role, name=name, gaps=count, nanoseconds=length))  # type: ignore[arg-type]
    return tuple(kept)


def _described(gaps: _Gaps, gap: int, origin: int) -> Gap:
    parts = gaps.parts(gap)
    cause = parts[0][0]
    seen = gaps.seen(gap, cause)
    device = gaps.timeline.device
    return Gap(
        start_nanoseconds=gaps.windows.starts[gap] - origin,
        nanoseconds=gaps.lengths[gap],
        cause=cause,
        parts=tuple(parts),
        before=device.name_of(gaps.before[gap]),
        after=device.name_of(gaps.after[gap]),
        call=seen.get("call", seen.get("loader", "")),
        operator=seen.get("operator", ""),
        place=seen.get("place", ""),
    )
