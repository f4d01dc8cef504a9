"""A timeline as lanes to draw: what the host, the data loader and the device did, side by side, in few enough spans.

A trace holds a hundred thousand events where a page can draw some thousands. Of nested operators the outermost is kept,
and short events that follow one another in a lane become one span with their number. Everything left out is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from hotlap.traces.dialects import BACKWARD, LOADER, STEP_NAME, SYNCHRONISATION, Kind, is_collective
from hotlap.traces.timeline import Events, HostEvents, Selection, Step, Timeline

Side: TypeAlias = Literal["loader", "host", "device"]
SpanKind: TypeAlias = Literal[
    "loader", "operator", "backward", "annotation", "wait", "kernel", "copy", "memset", "communication"
]

MOST_SPANS = 2400
MOST_HOST_THREADS = 4
MOST_STREAMS = 6
_LONGEST_UNSEEN_SHARE = 0.002
"""Of a step. Where spans this long would have to be drawn as one, fewer steps are drawn instead."""


class LaneSpan(NamedTuple):
    """A span of time. ``events`` above 1: that many short consecutive events, with the time between them; ``name`` and
    ``kind`` are then those on which most of it was spent."""

    start: int
    end: int
    name: str
    kind: SpanKind
    events: int = 1


class Lane(NamedTuple):
    """One row of the drawing. Its spans are in order; ``events`` and ``busy`` (nanoseconds) are of all that it stands
    for, and ``longest`` its names, those first that took most: name, how often, nanoseconds."""

    side: Side
    name: str
    spans: tuple[LaneSpan, ...]
    events: int
    busy: int
    longest: tuple[tuple[str, int, int], ...] = ()


class Lanes(NamedTuple):
    """Consecutive steps of one trace; times are nanoseconds since ``start``. Neighbours shorter than
    ``merged_below`` are drawn as one (0: everything is drawn). ``steps_in_trace`` counts those that are not drawn too.
    """

    start: int
    length: int
    steps: tuple[Step, ...]
    steps_in_trace: int
    lanes: tuple[Lane, ...]
    merged_below: int


def lanes_of(timeline: Timeline, *, most_spans: int = MOST_SPANS, most_steps: int | None = None) -> Lanes | None:
    """The last steps of a trace, as many as can be drawn in ``most_spans`` spans with their parts still told apart, and
    ``most_steps`` at most; None for a trace that marks no steps."""
    steps = timeline.steps if most_steps is None else timeline.steps[-most_steps:]
    while steps:
        start, end = steps[0].start, max(it.end for it in steps)
        whole = [it for it in _lanes(timeline, start, end) if it.spans]
        merged_below = _coarseness(whole, most_spans)
        if len(steps) == 1 or merged_below <= _LONGEST_UNSEEN_SHARE * (end - start) / len(steps):
            return Lanes(
                start=start,
                length=end - start,
                steps=tuple(it._replace(start=it.start - start, end=it.end - start) for it in steps),
                steps_in_trace=len(timeline.steps),
                lanes=tuple(it._replace(spans=tuple(merged(it.spans, merged_below))) for it in whole),
                merged_below=merged_below,
            )
        steps = steps[len(steps) // 2 :]
    return None


def lanes_of_both(before: Timeline, after: Timeline) -> tuple[Lanes | None, Lanes | None]:
    """Two traces in equally many steps, and together in as many spans as one."""
    most_spans = MOST_SPANS // 2
    most_steps = min(len(before.steps), len(after.steps)) or None
    while True:
        found = [lanes_of(it, most_spans=most_spans, most_steps=most_steps) for it in (before, after)]
        drawn = [len(it.steps) for it in found if it is not None]
        if len(drawn) < 2 or min(drawn) == max(drawn):
            return found[0], found[1]
        most_steps = min(drawn)


def coarser(lanes: Lanes, most_spans: int) -> Lanes:
    """The same lanes in so many spans at most."""
    merged_below = _coarseness(lanes.lanes, most_spans)
    if merged_below <= lanes.merged_below:
        return lanes
    drawn = tuple(it._replace(spans=tuple(merged(it.spans, merged_below))) for it in lanes.lanes)
    return lanes._replace(lanes=drawn, merged_below=merged_below)


def merged(spans: Sequence[LaneSpan], shorter_than: int) -> Iterator[LaneSpan]:
    """The spans of a lane, runs of such as are shorter than that, and no further apart, made into one each."""
    run: list[LaneSpan] = []
    for it in spans:
        short = it.end - it.start < shorter_than
        if run and not (short and it.start - run[-1].end < shorter_than):
            yield _as_one(run)
            run = []
        if short:
            run.append(it)
        else:
            yield it
    if run:
        yield _as_one(run)


def _as_one(run: Sequence[LaneSpan]) -> LaneSpan:
    spent: Counter[tuple[str, SpanKind]] = Counter()
    for it in run:
        spent[(it.name, it.kind)] += it.end - it.start
    (name, kind), _ = spent.most_common(1)[0]
    return LaneSpan(run[0].start, run[-1].end, name, kind, sum(it.events for it in run))


def _coarseness(lanes: Sequence[Lane], most_spans: int) -> int:
    """The shortest length (of powers of two) below which spans must be merged for so few to remain; 0 for none. One a
    lane remains in any case."""
    if sum(len(it.spans) for it in lanes) <= most_spans:
        return 0
    shorter_than = 1024
    while sum(sum(1 for _ in merged(it.spans, shorter_than)) for it in lanes) > max(most_spans, len(lanes)):
        shorter_than *= 2
    return shorter_than


# ---------------------------------------------------------------------------------------------
# The lanes of a window, with all their spans
# ---------------------------------------------------------------------------------------------


def _lanes(timeline: Timeline, start: int, end: int) -> Iterator[Lane]:
    yield _lane("loader", "data loader", outermost(_loader_spans(timeline)), start, end)
    yield _lane("host", "marks", outermost(_marks(timeline)), start, end)
    for number, thread in enumerate(_threads(timeline)):
        name = f"thread {timeline.threads[thread][1]}" if number else "main thread"
        yield _lane("host", name, outermost(_operators(timeline, thread)), start, end)
    yield _lane("host", "waiting for a device", outermost(_waits(timeline)), start, end)
    yield from _device_lanes(timeline, start, end)


def _lane(side: Side, name: str, spans: Iterable[LaneSpan], start: int, end: int) -> Lane:
    """The lane within a window, whose start becomes zero; what reaches beyond the window is cut."""
    inside = tuple(
        it._replace(start=max(it.start, start) - start, end=min(it.end, end) - start)
        for it in spans
        if it.end > start and it.start < end
    )
    return Lane(side, name, inside, len(inside), sum(it.end - it.start for it in inside), tuple(_longest(inside)))


def _longest(spans: Iterable[LaneSpan]) -> Iterator[tuple[str, int, int]]:
    times: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    for it in spans:
        times[it.name] += 1
        spent[it.name] += it.end - it.start
    yield from ((name, times[name], nanoseconds) for name, nanoseconds in spent.most_common())


def outermost(spans: Iterable[LaneSpan]) -> Iterator[LaneSpan]:
    """Keep only the outer one of nested spans; cut overlapping ones at the end of the earlier."""
    reached = None
    for it in sorted(spans, key=lambda it: (it.start, -it.end)):
        if reached is not None and it.end <= reached:
            continue
        yield it if reached is None or it.start >= reached else it._replace(start=reached)
        reached = it.end


def _threads(timeline: Timeline) -> list[int]:
    """The threads whose operators are drawn: the one that marks the steps first, then the busiest."""
    marking = {it.thread for it in timeline.steps}
    busy: Counter[int] = Counter()
    table = timeline.operators
    for start, end, thread in zip(table.start, table.end, table.thread, strict=True):
        busy[thread] += end - start
    ranked = sorted(busy, key=lambda it: (it not in marking, -busy[it]))
    return ranked[:MOST_HOST_THREADS]


def _operators(timeline: Timeline, thread: int) -> Iterator[LaneSpan]:
    table = timeline.operators
    backward, loader = table.named(BACKWARD.search), table.named(LOADER.search)
    for it, own in enumerate(table.thread):
        if own == thread and table.name[it] not in loader:
            yield _span(table, it, "backward" if table.name[it] in backward else "operator")


def _marks(timeline: Timeline) -> Iterator[LaneSpan]:
    """The ranges named by torch (the optimizer's step) and the script, on the thread that marks the steps."""
    marks = timeline.annotations
    threads = {it.thread for it in timeline.steps}
    left_out = marks.named(LOADER.search) | marks.named(STEP_NAME.search)
    for it, (thread, name) in enumerate(zip(marks.thread, marks.name, strict=True)):
        if thread in threads and name not in left_out:
            yield _span(marks, it, "annotation")


def _loader_spans(timeline: Timeline) -> Iterator[LaneSpan]:
    for table in (timeline.annotations, timeline.operators, timeline.frames):
        yield from _named(table, table.named(LOADER.search), "loader")


def _waits(timeline: Timeline) -> Iterator[LaneSpan]:
    yield from _named(timeline.calls, timeline.calls.named(SYNCHRONISATION.search), "wait")


def _named(table: HostEvents, names: frozenset[int], kind: SpanKind) -> Iterator[LaneSpan]:
    return (_span(table, it, kind) for it, name in enumerate(table.name) if name in names)


def _device_lanes(timeline: Timeline, start: int, end: int) -> Iterator[Lane]:
    """Make a lane for each stream of each device; of many streams for the busiest."""
    events = timeline.device
    streams: dict[tuple[int, int], list[int]] = {}
    for it, place in enumerate(zip(events.device, events.stream, strict=True)):
        streams.setdefault(place, []).append(it)
    collectives = events.named(is_collective)
    for device, stream in sorted(sorted(streams, key=lambda it: -len(streams[it]))[:MOST_STREAMS]):
        selected: Selection = streams[(device, stream)]
        spans = (_span(events, it, _device_kind(events.kind[it], events.name[it] in collectives)) for it in selected)
        yield _lane("device", f"{device}, stream {stream}", outermost(spans), start, end)


def _device_kind(kind: int, collective: bool) -> SpanKind:
    if kind == Kind.COPY:
        return "copy"
    if kind == Kind.MEMSET:
        return "memset"
    return "communication" if collective else "kernel"


def _span(table: Events, event: int, kind: SpanKind) -> LaneSpan:
    return LaneSpan(table.start[event], table.end[event], table.name_of(event), kind)
