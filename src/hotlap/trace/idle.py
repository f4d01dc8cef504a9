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

from dataclasses import dataclass

import numpy as np

from hotlap.trace.dialects import COMMUNICATION_KERNEL
from hotlap.trace.hosts import HostActivity, moments_in
from hotlap.trace.intervals import Intervals, Times, nothing, subtraction, union
from hotlap.trace.records import Cause, Evidence, Gap, Idle, IdleCause
from hotlap.trace.timeline import NONE, Column, Mask, Timeline
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
_NUMBER: dict[Cause, int] = {cause: number for number, cause in enumerate(CAUSES)}

GAPS_LOOKED_INTO = 40
"""Of each cause, how many of the longest gaps are looked into for evidence."""

GAPS_KEPT = 20
_EVIDENCE_KEPT = 5


@dataclass(frozen=True, slots=True, eq=False)
class _Gaps:
    """All gaps as columns. ``after`` is the device event that ends the gap, ``launched`` when it was issued;
    ``wait`` is the host's wait that ended in the gap, as an index into the activity's waits, or :data:`NONE`."""

    start: Times
    end: Times
    before: Column
    after: Column
    launched: Times
    host_late: Mask
    linked: Mask
    wait: Column
    parts: Column
    """One row per gap, one column per cause, in nanoseconds."""


def explain_idle(timeline: Timeline, selected: Mask) -> Idle:
    """Every gap between the selected events of one device, by cause."""
    events = timeline.device
    chosen = np.flatnonzero(selected)
    between = _not_busy(events.start[chosen], events.end[chosen])
    if not len(between):
        return Idle(nanoseconds=0, gaps=0)
    activity = HostActivity(timeline, selected)
    gaps = _attribute(timeline, activity, chosen, between)
    sizes = gaps.end - gaps.start
    main = gaps.parts.argmax(axis=1)
    origin = int(events.start[chosen[0]])
    by_size = np.argsort(-sizes, kind="stable")[:GAPS_KEPT]
    return Idle(
        nanoseconds=int(sizes.sum()),
        gaps=len(sizes),
        causes=_causes(timeline, activity, gaps, main),
        longest=tuple(_described(timeline, activity, gaps, int(it), origin) for it in by_size),
    )


def _not_busy(starts: Times, ends: Times) -> Intervals:
    """What the events leave free from the first one's start to the last one's end, both of which may take no time."""
    if not len(starts):
        return nothing()
    busy = union(starts, ends)
    free_from = np.concatenate((starts[:1], busy.ends))
    free_to = np.concatenate((busy.starts, ends.max(keepdims=True)))
    real = free_to > free_from
    return Intervals(free_from[real], free_to[real])


def _attribute(timeline: Timeline, activity: HostActivity, chosen: Column, idle: Intervals) -> _Gaps:
    events, host = timeline.device, timeline.host
    after = chosen[np.searchsorted(events.start[chosen], idle.ends, side="left")]
    by_end = chosen[np.argsort(events.end[chosen], kind="stable")]
    before = by_end[np.searchsorted(events.end[by_end], idle.starts, side="right") - 1]
    linked = events.launch[after] != NONE
    launched = np.where(linked, host.start[events.launch[after]] if len(host) else 0, idle.ends)
    host_late = linked & (launched > idle.starts)
    gaps = _Gaps(
        start=idle.starts,
        end=idle.ends,
        before=before,
        after=after,
        launched=launched,
        host_late=host_late,
        linked=linked,
        wait=_waits_ended_in(activity, idle.starts, launched, host_late),
        parts=np.zeros((len(idle), len(CAUSES)), dtype=np.int64),
    )
    _share_host_time(activity, gaps)
    rest = idle.ends - idle.starts - gaps.parts.sum(axis=1)
    gaps.parts[np.arange(len(idle)), _cause_of_rest(timeline, activity, gaps)] += rest
    return gaps


def _share_host_time(activity: HostActivity, gaps: _Gaps) -> None:
    """What the host spent on nameable things while the device waited for it. No moment counts twice."""
    counted = nothing()
    spans: tuple[tuple[Cause, Intervals], ...] = (
        ("data_loader", activity.loader),
        ("capture_or_compile", activity.compilation),
        ("communication", activity.communication),
        ("profiler", activity.profiler),
    )
    for cause, these in spans:
        own = subtraction(these, counted)
        gaps.parts[:, _NUMBER[cause]] = np.where(gaps.host_late, own.within(gaps.start, gaps.end), 0)
        counted = union(np.concatenate((counted.starts, own.starts)), np.concatenate((counted.ends, own.ends)))


def _waits_ended_in(activity: HostActivity, start: Times, launched: Times, host_late: Mask) -> Column:
    """The last wait for the device from which the host returned between the gap's start and the launch."""
    waits = activity.waits
    if not len(waits):
        return np.full(len(start), NONE, dtype=np.int64)
    ends = activity.timeline.host.end[waits]
    last = np.searchsorted(ends, launched, side="right") - 1
    returned = host_late & (last >= 0) & (ends[np.maximum(last, 0)] >= start)
    return np.where(returned, last, NONE)


def _cause_of_rest(timeline: Timeline, activity: HostActivity, gaps: _Gaps) -> Column:
    """For each gap the number of the cause that gets what is left of it."""
    names = timeline.device.name
    collective = timeline.named(COMMUNICATION_KERNEL)
    beside_collective = collective[names[gaps.after]] | collective[names[gaps.before]]
    short = gaps.end - gaps.start < KERNEL_WAIT_BELOW
    waited = gaps.wait != NONE
    upload = np.zeros(len(waited), dtype=bool)
    upload[waited] = activity.wait_uploads[gaps.wait[waited]]
    new_step = moments_in(timeline.steps.start, gaps.start, gaps.launched)
    conditions = [
        ~gaps.linked,
        ~gaps.host_late & short,
        ~gaps.host_late & beside_collective,
        ~gaps.host_late,
        upload,
        waited,
        new_step,
    ]
    results: list[Cause] = [
        "unknown", "queued", "communication", "unknown", "blocking_copy", "host_sync", "between_steps"
    ]  # fmt: skip
    return np.select(conditions, [_NUMBER[it] for it in results], default=_NUMBER["launch_bound"])


def _causes(timeline: Timeline, activity: HostActivity, gaps: _Gaps, main: Column) -> tuple[IdleCause, ...]:
    """The causes that have any time, the largest first. A gap counts for the cause that has most of it."""
    within_operators = activity.operators.within(gaps.start, gaps.end)
    found = []
    for number, cause in enumerate(CAUSES):
        part = gaps.parts[:, number]
        total = int(part.sum())
        if not total:
            continue
        mine = np.flatnonzero(main == number)
        operators = (
            int(np.minimum(within_operators, part)[mine].sum()) if cause in ("launch_bound", "between_steps") else 0
        )
        found.append(
            IdleCause(
                cause=cause,
                nanoseconds=total,
                gaps=len(mine),
                longest_nanoseconds=int(part.max()),
                host_operator_nanoseconds=operators,
                evidence=_evidence(timeline, activity, gaps, cause, np.argsort(-part, kind="stable"), part),
            )
        )
    return tuple(sorted(found, key=lambda it: -it.nanoseconds))


def _evidence(
    timeline: Timeline, activity: HostActivity, gaps: _Gaps, cause: Cause, order: Column, part: Column
) -> tuple[Evidence, ...]:
    """What is seen in the longest gaps of a cause, summed by name."""
    sums: dict[tuple[str, str], list[int]] = {}
    for index in order[:GAPS_LOOKED_INTO]:
        if not part[index]:
            break
        for role, name in _seen(timeline, activity, gaps, int(index), cause).items():
            if name:
                entry = sums.setdefault((role, name), [0, 0])
                entry[0] += 1
                entry[1] += int(part[index])
    ranked = sorted(sums.items(), key=lambda it: -it[1][1])
    kept: list[Evidence] = []
    for (role, name), (count, length) in ranked:
        if sum(it.role == role for it in kept) < _EVIDENCE_KEPT:
            kept.append(Evidence(role=role, name=name, gaps=count, nanoseconds=length))  # type: ignore[arg-type]
    return tuple(kept)


def _seen(timeline: Timeline, activity: HostActivity, gaps: _Gaps, index: int, cause: Cause) -> dict[str, str]:
    """What the host did in one gap, by role."""
    seen = {"next_kernel": timeline.names[timeline.device.name[gaps.after[index]]]}
    if not gaps.linked[index] or not gaps.host_late[index]:
        return seen
    call = int(timeline.device.launch[gaps.after[index]])
    if cause in ("host_sync", "blocking_copy"):
        call = int(activity.waits[gaps.wait[index]]) if gaps.wait[index] != NONE else call
    elif cause == "launch_bound":
        call = _call_that_held(activity, gaps, index, call)
    thread = int(timeline.host.thread[call])
    moment = int(timeline.host.start[call])
    if cause == "data_loader":
        return {"loader": _loader_in(timeline, activity, gaps, index)}
    return {
        "call": timeline.name_of(call),
        "operator": activity.operator_at(moment, thread),
        "place": activity.place_at(moment, thread),
    }


def _call_that_held(activity: HostActivity, gaps: _Gaps, index: int, launch: int) -> int:
    """The call that took most of a gap, if one did; else the launch at its end."""
    start, end = int(gaps.start[index]), int(gaps.end[index])
    longest = activity.longest_between(start, end, activity.calls)
    host = activity.timeline.host
    if longest == NONE or min(host.end[longest], end) - max(host.start[longest], start) < (end - start) / 2:
        return launch
    return longest


def _loader_in(timeline: Timeline, activity: HostActivity, gaps: _Gaps, index: int) -> str:
    """The name of the loader's longest span that reaches into a gap."""
    longest = activity.longest_between(int(gaps.start[index]), int(gaps.end[index]), activity.loader_events)
    return "" if longest == NONE else timeline.name_of(longest)


def _described(timeline: Timeline, activity: HostActivity, gaps: _Gaps, index: int, origin: int) -> Gap:
    parts = gaps.parts[index]
    cause = CAUSES[int(parts.argmax())]
    seen = _seen(timeline, activity, gaps, index, cause)
    names = timeline.device.name
    return Gap(
        start_nanoseconds=int(gaps.start[index]) - origin,
        nanoseconds=int(gaps.end[index] - gaps.start[index]),
        cause=cause,
        parts=tuple((CAUSES[int(it)], int(parts[it])) for it in np.argsort(-parts, kind="stable") if parts[it]),
        before=timeline.names[names[gaps.before[index]]],
        after=timeline.names[names[gaps.after[index]]],
        call=seen.get("call", seen.get("loader", "")),
        operator=seen.get("operator", ""),
        place=seen.get("place", ""),
    )
