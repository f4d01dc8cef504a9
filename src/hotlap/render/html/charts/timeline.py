"""The profiled steps as a timeline that can be zoomed: what loader, host and device did, before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.event_names import event_name
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.embedding import embedded_json
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.html.two_parts import AFTER, BEFORE, Part, headings, row_axis, rows_of, starts
from hotlap.render.material import Material
from hotlap.traces.lanes import Lane, Lanes, Side, SpanKind, coarser

order = 80

_ROW_PIXELS = 30
_MILLION = 1e6
_LONGEST_NAME, _SHORTENED_NAME = 90, 24
_MOST_NAME_BYTES = 250_000
"""Names longer than this in total are shortened, so that the page stays small."""

_OTHER = {"test": "sought !== '' && indexof(lower(datum.name), sought) < 0", "value": 0.1}
_STILL_SPANS = 240
_LONGEST_SHOWN = 12
_SIDES: dict[Side, str] = {"loader": "data loader", "host": "host", "device": "device"}
_KINDS: dict[SpanKind, tuple[str, str]] = {
    "loader": ("data loader", "var(--data-wait)"),
    "operator": ("operator", "var(--forward)"),
    "backward": ("backward", "var(--backward)"),
    "annotation": ("named stretch", "var(--optimizer)"),
    "wait": ("waiting", "var(--differ)"),
    "kernel": ("kernel", "var(--kept)"),
    "copy": ("copy", "var(--host-to-device)"),
    "memset": ("memset", "var(--other)"),
    "communication": ("communication", "var(--communication)"),
}


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.lanes, material.plan_lanes, samples_factor=_samples_factor(material.study))
    return () if found is None else (found,)


def _samples_factor(study: Study) -> float:
    """How many times as many samples a step holds with the plan; 1.0 where that is not known."""
    samples = study.timings
    if samples is None or not samples.baseline_samples or not samples.plan_samples:
        return 1.0
    return samples.plan_samples / samples.baseline_samples


def chart(lanes: Lanes | None, after: Lanes | None = None, *, samples_factor: float = 1.0) -> Chart | None:
    """The lanes of the last profiled steps, and below them those with the plan; None where there is no trace."""
    if lanes is None or not lanes.lanes:
        return None
    both = (lanes, after) if after is not None and after.lanes else (lanes,)
    return Chart(
        name="timeline",
        title="A look into the steps, before and after" if len(both) > 1 else "A look into the steps",
        description=_description(both),
        drawn=_drawn(both),
        still=_drawn([coarser(it, _STILL_SPANS // len(both)) for it in both]),
        table=_table(both),
        legend=_legend(both),
        notes=tuple(_notes(both, samples_factor)),
        zooms=True,
        searches=True,
    )


def longest_table(lanes: Lanes, after: Lanes | None = None) -> Table:
    """The longest things of all lanes, by name; with the plan also how long the same names took then."""
    if after is not None and after.lanes:
        return _changed_table(lanes, after)
    found = [(lane_name(lane), *it) for lane in lanes.lanes for it in lane.longest]
    longest = sorted(found, key=lambda it: -it[3])[:_LONGEST_SHOWN]
    return Table(
        ("what", "lane", ">times", ">time"),
        tuple((event_name(name), lane, f"{times:,}", _duration(spent)) for lane, name, times, spent in longest),
        "What took longest in the steps shown",
    )


def _changed_table(before: Lanes, after: Lanes) -> Table:
    """What took longest on either side; threads and streams may have other numbers, so only the kind of lane counts."""
    one, other = _by_name(before), _by_name(after)
    nothing = (0, 0)
    names = sorted(one | other, key=lambda it: -max(one.get(it, nothing)[1], other.get(it, nothing)[1]))
    rows = []
    for it in names[:_LONGEST_SHOWN]:
        (times, spent), (times_after, spent_after) = one.get(it, nothing), other.get(it, nothing)
        side, name = it
        cells = (f"{times:,}", f"{times_after:,}", _duration_or_none(spent), _duration_or_none(spent_after))
        rows.append((event_name(name), _SIDES[side], *cells))
    return Table(
        ("what", "where", ">times before", ">after", ">time before", ">time after"),
        tuple(rows),
        "What took longest in the steps shown, before and after",
    )


def _by_name(lanes: Lanes) -> dict[tuple[Side, str], tuple[int, int]]:
    """How often each name of a side occurs, and how many nanoseconds it took."""
    found: dict[tuple[Side, str], tuple[int, int]] = {}
    for lane in lanes.lanes:
        for name, times, spent in lane.longest:
            known = found.get((lane.side, name), (0, 0))
            found[(lane.side, name)] = known[0] + times, known[1] + spent
    return found


def _duration_or_none(nanoseconds: int) -> str:
    return _duration(nanoseconds) if nanoseconds else "none"


def lane_name(lane: Lane) -> str:
    """``main thread``, ``device 0, stream 7``; the loader has one lane."""
    if lane.side == "loader":
        return "data loader"
    name = text.one_line(lane.name, limit=40)
    return f"device {name}" if lane.side == "device" else name


def _parts(both: Sequence[Lanes]) -> list[Part]:
    return [
        Part(name, f"{name.capitalize()}: {_steps_in(it)}", tuple(map(lane_name, it.lanes)))
        for name, it in zip((BEFORE, AFTER), both, strict=False)
    ]


def _steps_in(lanes: Lanes) -> str:
    return f"{text.count(len(lanes.steps), 'step')} in {_duration(lanes.length)}"


def _drawn(both: Sequence[Lanes]) -> Specification:
    parts = _parts(both)
    end = max(it.length for it in both) / _MILLION
    domain = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}, "nice": False, "zero": False}
    x = {"type": "quantitative", "title": "ms", "scale": domain, "axis": {"format": ",.6~r"}}
    y = row_axis(parts)
    colour = {"field": "kind", "scale": colours(_legend(both))}
    return specification(
        height=_ROW_PIXELS * len(rows_of(parts)),
        params=[{"name": "from", "value": 0}, {"name": "to", "value": end}, {"name": "sought", "value": ""}],
        layer=[
            *starts(parts, [_steps(it) for it in both], x, y),
            {
                "data": {"name": "spans", "values": list(_values(both, parts))},
                "mark": {"type": "bar", "clip": True, "height": {"band": 0.74}, "minBandSize": 1},
                "encoding": {
                    "x": {**x, "field": "start"},
                    "x2": {"field": "end"},
                    "y": {**y, "field": "row"},
                    "color": colour,
                    "opacity": {"condition": _OTHER, "value": 1},
                    "tooltip": [
                        {"field": "name"},
                        {"field": "time"},
                        {"field": "start", "title": "at, ms", "format": ",.6~r"},
                    ],
                },
            },
            *headings(parts, y),
        ],
    )


def _legend(both: Sequence[Lanes]) -> tuple[tuple[str, str], ...]:
    seen = {it.kind for lanes in both for lane in lanes.lanes for it in lane.spans}
    return tuple(of for kind, of in _KINDS.items() if kind in seen)


def _steps(lanes: Lanes) -> list[Specification]:
    return [{"start": it.start / _MILLION, "name": f"step {it.number}"} for it in lanes.steps]


def _values(both: Sequence[Lanes], parts: Sequence[Part]) -> Iterator[Specification]:
    longest = _name_limit(both)
    for lanes, part in zip(both, parts, strict=True):
        for lane in lanes.lanes:
            name = lane_name(lane)
            for it in lane.spans:
                shown = event_name(it.name, longest)
                yield {
                    "row": part.row(name),
                    "start": round(it.start / _MILLION, 6),
                    "end": round(it.end / _MILLION, 6),
                    "kind": _KINDS[it.kind][0],
                    "name": shown if it.events == 1 else f"{it.events} short ones, mostly {shown}",
                    "time": _duration(it.end - it.start),
                }


def _name_limit(both: Sequence[Lanes]) -> int:
    spans = (it for lanes in both for lane in lanes.lanes for it in lane.spans)
    needed = sum(len(embedded_json(event_name(it.name, _LONGEST_NAME))) for it in spans)
    return _LONGEST_NAME if needed <= _MOST_NAME_BYTES else _SHORTENED_NAME


def _table(both: Sequence[Lanes]) -> Table:
    rows = [
        (
            (part.name,) * (len(both) > 1)
            + (lane_name(it), f"{it.events:,}", _duration(it.busy), text.share(it.busy / lanes.length))
        )
        for lanes, part in zip(both, _parts(both), strict=True)
        for it in lanes.lanes
    ]
    side = ("side",) * (len(both) > 1)
    return Table((*side, "lane", ">events", ">busy", ">of the time shown"), tuple(rows))


def _description(both: Sequence[Lanes]) -> str:
    def busy(lanes: Lanes) -> str:
        return ", ".join(f"{lane_name(it)} {text.share(it.busy / lanes.length)}" for it in lanes.lanes)

    before, *after = both
    steps = text.count(len(before.steps), "profiled step")
    if not after:
        said = f"A timeline of {steps}, {_duration(before.length)} long. Share of that in which each lane was busy: "
        return f"{said}{busy(before)}."
    return (
        f"Two timelines of {steps} on one scale: {_duration(before.length)} before and {_duration(after[0].length)} "
        f"after. Share in which each lane was busy before: {busy(before)}; after: {busy(after[0])}."
    )


def _notes(both: Sequence[Lanes], samples_factor: float) -> Iterator[str]:
    yield (
        "Under the profiler everything takes longer than in the figures above, but the order of events and their "
        "waits are the same."
    )
    lanes, *after = both
    if after:
        yield "Both begin at zero and have the same scale: where the lower one has ended, time was saved."
    if after and abs(samples_factor - 1) > 0.01:
        yield f"A step with the plan holds {samples_factor:.3g} times as many samples."
    if lanes.steps_in_trace > len(lanes.steps):
        yield f"Shown are the last {text.count(len(lanes.steps), 'step')} of {lanes.steps_in_trace} in the trace."
    merged_below = max(it.merged_below for it in both)
    if merged_below:
        yield f"Neighbours shorter than {_duration(merged_below)} are drawn as one; the trace file has them all."


def _duration(nanoseconds: int) -> str:
    return text.duration(nanoseconds / 1e9)
