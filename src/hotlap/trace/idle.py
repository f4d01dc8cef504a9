"""Why a device did nothing: each idle gap by what the host and the device were doing.

A gap lies between the end of everything that ran before it and the start of the next event. What decides is the launch
of that next event.

*Queued.* It had been launched before the gap began: the device had work and took its time. A gap shorter than 30
microseconds is the usual turn from one kernel to the next; a longer one next to a collective is communication, and any
other is unknown.

*Host late.* It was launched within the gap: the device waited for the host. Whatever the issuing threads spent inside
the data loader, compilation or capture, a collective's host part, or the profiler's own work goes to those, in this
order. The rest goes to one cause: to a host sync or a blocking copy when the host returned from waiting for the device
within the gap, for then the queue had run dry because of it; else to the time between steps when a step began in it;
else the host simply issued work more slowly than the device finished it: launch-bound.

*Unlinked.* The trace holds no launch of the next event: unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from heapq import nlargest
from typing import NamedTuple, TypeAlias

from hotlap.trace.dialects import COMMUNICATION_KERNEL
from hotlap.trace.hosts import HostActivity, Wait
from hotlap.trace.intervals import Intervals, Span, nothing, overlaps, subtraction, union
from hotlap.trace.records import Cause, Evidence, Gap, Idle, IdleCause
from hotlap.trace.timeline import NONE, Selection, Timeline
from hotlap.trace.usage import KERNEL_WAIT_BELOW

CAUSES: tuple[Cause, ...] = (
    "data_loader",
    "capture_or_compile",
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
"""Of each cause, how many of the longest gaps are looked into for evidence."""

GAPS_KEPT = 20
_EVIDENCE_KEPT = 5


class _Gap(NamedTuple):
    """A time without work on the device: from the end of event ``before`` to the start of event ``after``."""

    start: int
    end: int
    before: int
    after: int

    @property
    def nanoseconds(self) -> int:
        return self.end - self.start


_Part: TypeAlias = tuple[int, int]
"""Nanoseconds that a cause has of a gap, and the gap's index counted from zero downwards: of equal parts the largest is
the earliest."""


class _Gaps:
    """All gaps of a device and what each cause has of them.

    ``rest`` is the cause that gets what is left of each gap when ``shared`` is taken off, which few gaps have any of.
    """

    def __init__(self, timeline: Timeline, activity: HostActivity, gaps: list[_Gap]) -> None:
        self.timeline = timeline
        self.activity = activity
        self.gaps = gaps
        self.waits: dict[int, Wait] = {}
        self.shared = self._shared_host_time()
        self.rest = self._causes_of_rest()

    def host_late(self, gap: _Gap) -> bool:
        """Whether the work that ended a gap was launched within it."""
        events = self.timeline.device
        return events.launch[gap.after] != NONE and events.launched[gap.after] > gap.start

    def parts(self, index: int) -> list[tuple[Cause, int]]:
        """What each cause has of a gap, the largest part first."""
        parts = dict(self.shared.get(index, {}))
        rest = self.gaps[index].nanoseconds - sum(parts.values())
        if rest:
            parts[self.rest[index]] = parts.get(self.rest[index], 0) + rest
        return sorted(parts.items(), key=lambda it: (-it[1], _RANK[it[0]]))

    def by_cause(self) -> tuple[dict[Cause, list[_Part]], dict[Cause, list[_Part]]]:
        """For each cause all its parts, and those of the gaps of which it has most."""
        having: dict[Cause, list[_Part]] = {it: [] for it in CAUSES}
        main: dict[Cause, list[_Part]] = {it: [] for it in CAUSES}
        shared = self.shared
        for index, ((start, end, _, _), cause) in enumerate(zip(self.gaps, self.rest, strict=True)):
            if index not in shared:
                having[cause].append((end - start, -index))
        for cause, parts in having.items():
            main[cause] += parts
        for index in shared:
            ranked = self.parts(index)
            for cause, length in ranked:
                having[cause].append((length, -index))
            cause, length = ranked[0]
            main[cause].append((length, -index))
        return having, main

    def _shared_host_time(self) -> dict[int, dict[Cause, int]]:
        """What the host spent on nameable things while the device waited for it. No moment counts twice."""
        activity = self.activity
        windows: list[Span] = [(start, end) for start, end, _, _ in self.gaps]
        found: dict[int, dict[Cause, int]] = {}
        counted = nothing()
        spans: tuple[tuple[Cause, Intervals], ...] = (
            ("data_loader", activity.loader),
            ("capture_or_compile", activity.compilation),
            ("communication", activity.communication),
            ("profiler", activity.profiler),
        )
        for cause, these in spans:
            own = subtraction(these, counted)
            for index, length in overlaps(windows, own):
                if self.host_late(self.gaps[index]):
                    parts = found.setdefault(index, {})
                    parts[cause] = parts.get(cause, 0) + length
            counted = union([*counted, *own])
        return found

    def _causes_of_rest(self) -> list[Cause]:
        events = self.timeline.device
        launch, launched, name = events.launch, events.launched, events.name
        collective = events.named(COMMUNICATION_KERNEL)
        found: list[Cause] = []
        for index, (start, end, before, after) in enumerate(self.gaps):
            if launch[after] == NONE:
                found.append("unknown")
            elif launched[after] > start:
                found.append(self._cause_of_late_host(index, start, launched[after]))
            elif end - start < KERNEL_WAIT_BELOW:
                found.append("queued")
            else:
                beside_collective = name[after] in collective or name[before] in collective
                found.append("communication" if beside_collective else "unknown")
        return found

    def _cause_of_late_host(self, index: int, start: int, launched: int) -> Cause:
        """What gets the rest of a gap in which the device waited for the host."""
        ends = self.activity.wait_ends
        last = bisect_right(ends, launched) - 1
        if last >= 0 and ends[last] >= start:
            self.waits[index] = self.activity.waits[last]
            return "blocking_copy" if self.waits[index].upload else "host_sync"
        steps = self.timeline.step_starts
        return "between_steps" if bisect_right(steps, launched) > bisect_right(steps, start) else "launch_bound"


def explain_idle(timeline: Timeline, selected: Selection, activity: HostActivity) -> Idle:
    """Every gap between the selected events of one device, by cause. ``activity`` is that of the threads which issued
    them."""
    found = list(_gaps_between(timeline, selected))
    if not found:
        return Idle(nanoseconds=0, gaps=0)
    gaps = _Gaps(timeline, activity, found)
    origin = timeline.device.start[selected[0]]
    by_size = nlargest(GAPS_KEPT, range(len(found)), key=lambda it: found[it].nanoseconds)
    return Idle(
        nanoseconds=sum(end - start for start, end, _, _ in found),
        gaps=len(found),
        causes=_causes(gaps),
        longest=tuple(_described(gaps, it, origin) for it in by_size),
    )


def _gaps_between(timeline: Timeline, selected: Selection) -> Iterator[_Gap]:
    """What the events leave free from the first one's start to the last one's end.

    An event that takes no time ends no gap, unless it is the last one of all.
    """
    if not selected:
        return
    start, end = timeline.device.start, timeline.device.end
    last = first_then = selected[0]
    reached = then = start[last]
    for it in selected:
        began, ended = start[it], end[it]
        if began != then:
            then, first_then = began, it
        if ended > began > reached:
            yield _Gap(reached, began, last, first_then)
        elif ended < reached or ended == began > reached:
            continue
        reached, last = ended, it
    if then > reached:
        yield _Gap(reached, then, last, first_then)


def _causes(gaps: _Gaps) -> tuple[IdleCause, ...]:
    """The causes that have any time, the largest first. A gap counts for the cause that has most of it."""
    having, main = gaps.by_cause()
    found = [
        IdleCause(
            cause=cause,
            nanoseconds=sum(length for length, _ in parts),
            gaps=len(main[cause]),
            longest_nanoseconds=max(parts)[0],
            host_operator_nanoseconds=(
                _within_operators(gaps, main[cause]) if cause in ("launch_bound", "between_steps") else 0
            ),
            evidence=_evidence(gaps, nlargest(GAPS_LOOKED_INTO, parts), cause),
        )
        for cause, parts in having.items()
        if parts
    ]
    return tuple(sorted(found, key=lambda it: -it.nanoseconds))


def _within_operators(gaps: _Gaps, parts: list[_Part]) -> int:
    """How much of these parts of gaps the host may have spent in operators and calls."""
    in_order = sorted(parts, key=lambda it: -it[1])
    windows = [gaps.gaps[-index][:2] for _, index in in_order]
    within = [0] * len(windows)
    for index, shared in overlaps(windows, gaps.activity.operators):
        within[index] += shared
    return sum(min(shared, length) for shared, (length, _) in zip(within, in_order, strict=True))


def _evidence(gaps: _Gaps, parts: list[_Part], cause: Cause) -> tuple[Evidence, ...]:
    """What is seen in these gaps, summed by name."""
    sums: dict[tuple[str, str], list[int]] = {}
    for length, index in parts:
        for role, name in _seen(gaps, -index, cause).items():
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


def _seen(gaps: _Gaps, index: int, cause: Cause) -> dict[str, str]:
    """What the host did in one gap, by role."""
    timeline, activity, gap = gaps.timeline, gaps.activity, gaps.gaps[index]
    if not gaps.host_late(gap):
        return {"next_kernel": timeline.device.name_of(gap.after)}
    if cause == "data_loader":
        return {"loader": activity.loader_in(gap.start, gap.end)}
    call = timeline.device.launch[gap.after]
    if cause in ("host_sync", "blocking_copy") and index in gaps.waits:
        call = gaps.waits[index].call
    elif cause == "launch_bound":
        filling = activity.call_that_filled(gap.start, gap.end)
        call = call if filling == NONE else filling
    thread, moment = timeline.calls.thread[call], timeline.calls.start[call]
    return {
        "call": timeline.calls.name_of(call),
        "operator": activity.operator_at(moment, thread),
        "place": activity.place_at(moment, thread),
    }


def _described(gaps: _Gaps, index: int, origin: int) -> Gap:
    gap, parts = gaps.gaps[index], gaps.parts(index)
    cause = parts[0][0]
    seen = _seen(gaps, index, cause)
    device = gaps.timeline.device
    return Gap(
        start_nanoseconds=gap.start - origin,
        nanoseconds=gap.nanoseconds,
        cause=cause,
        parts=tuple(parts),
        before=device.name_of(gap.before),
        after=device.name_of(gap.after),
        call=seen.get("call", seen.get("loader", "")),
        operator=seen.get("operator", ""),
        place=seen.get("place", ""),
    )
