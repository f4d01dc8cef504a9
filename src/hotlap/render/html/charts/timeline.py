"""The profiled steps as a timeline that can be zoomed: what the loader, the host and the device did, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.event_names import event_name
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.embedding import embedded_json
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material
from hotlap.traces.lanes import Lane, Lanes, SpanKind, coarser

order = 80

_ROW_PIXELS = 30
_MILLION = 1e6
_LONGEST_NAME, _SHORTENED_NAME = 90, 24
_MOST_NAME_BYTES = 250_000
"""Names longer than this in total are shortened, so that the page stays small."""

_OTHER = {"test": "sought !== '' && indexof(lower(datum.name), sought) < 0", "value": 0.1}
_STILL_SPANS = 240
_LONGEST_SHOWN = 12
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
    found = chart(material.lanes)
    return () if found is None else (found,)


def chart(lanes: Lanes | None) -> Chart | None:
    """The lanes of the last profiled steps; None where there is no trace."""
    if lanes is None or not lanes.lanes:
        return None
    return Chart(
        name="timeline",
        title="A look into the steps",
        description=_description(lanes),
        drawn=_drawn(lanes),
        still=_drawn(coarser(lanes, _STILL_SPANS)),
        table=_table(lanes),
        legend=_legend(lanes),
        notes=tuple(_notes(lanes)),
        zooms=True,
        searches=True,
    )


def longest_table(lanes: Lanes) -> Table:
    """The longest things of all lanes, by name."""
    found = [(lane_name(lane), *it) for lane in lanes.lanes for it in lane.longest]
    longest = sorted(found, key=lambda it: -it[3])[:_LONGEST_SHOWN]
    return Table(
        ("what", "lane", ">times", ">time"),
        tuple((event_name(name), lane, f"{times:,}", _duration(spent)) for lane, name, times, spent in longest),
        "What took longest in the steps shown",
    )


def lane_name(lane: Lane) -> str:
    """``main thread``, ``device 0, stream 7``; the loader has one lane."""
    if lane.side == "loader":
        return "data loader"
    name = text.one_line(lane.name, limit=40)
    return f"device {name}" if lane.side == "device" else name


def _drawn(lanes: Lanes) -> Specification:
    names = [lane_name(it) for it in lanes.lanes]
    end = lanes.length / _MILLION
    domain = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}, "nice": False, "zero": False}
    x = {"type": "quantitative", "title": "ms", "scale": domain, "axis": {"format": ",.6~r"}}
    y = {"field": "lane", "type": "nominal", "sort": names, "title": None, "axis": {"labelLimit": 150}}
    colour = {"field": "kind", "scale": colours(_legend(lanes))}
    return specification(
        height=_ROW_PIXELS * len(lanes.lanes),
        params=[{"name": "from", "value": 0}, {"name": "to", "value": end}, {"name": "sought", "value": ""}],
        layer=[
            {
                "data": {"name": "steps", "values": _steps(lanes)},
                "mark": {"type": "rule", "clip": True, "color": "var(--edge)", "strokeDash": [2, 2]},
                "encoding": {"x": {**x, "field": "start"}},
            },
            {
                "data": {"name": "spans", "values": list(_values(lanes.lanes))},
                "mark": {"type": "bar", "clip": True, "height": {"band": 0.74}, "minBandSize": 1},
                "encoding": {
                    "x": {**x, "field": "start"},
                    "x2": {"field": "end"},
                    "y": y,
                    "color": colour,
                    "opacity": {"condition": _OTHER, "value": 1},
                    "tooltip": [
                        {"field": "name"},
                        {"field": "time"},
                        {"field": "start", "title": "at, ms", "format": ",.6~r"},
                    ],
                },
            },
        ],
    )


def _legend(lanes: Lanes) -> tuple[tuple[str, str], ...]:
    seen = {it.kind for lane in lanes.lanes for it in lane.spans}
    return tuple(of for kind, of in _KINDS.items() if kind in seen)


def _steps(lanes: Lanes) -> list[Specification]:
    return [{"start": it.start / _MILLION, "name": f"step {it.number}"} for it in lanes.steps]


def _values(lanes: Sequence[Lane]) -> Iterator[Specification]:
    longest = _name_limit(lanes)
    for lane in lanes:
        name = lane_name(lane)
        for it in lane.spans:
            shown = event_name(it.name, longest)
            yield {
                "lane": name,
                "start": round(it.start / _MILLION, 6),
                "end": round(it.end / _MILLION, 6),
                "kind": _KINDS[it.kind][0],
                "name": shown if it.events == 1 else f"{it.events} short ones, mostly {shown}",
                "time": _duration(it.end - it.start),
            }


def _name_limit(lanes: Sequence[Lane]) -> int:
    spans = (it for lane in lanes for it in lane.spans)
    needed = sum(len(embedded_json(event_name(it.name, _LONGEST_NAME))) for it in spans)
    return _LONGEST_NAME if needed <= _MOST_NAME_BYTES else _SHORTENED_NAME


def _table(lanes: Lanes) -> Table:
    rows = [
        (lane_name(it), f"{it.events:,}", _duration(it.busy), text.share(it.busy / lanes.length)) for it in lanes.lanes
    ]
    return Table(("lane", ">events", ">busy", ">of the time shown"), tuple(rows))


def _description(lanes: Lanes) -> str:
    busy = ", ".join(f"{lane_name(it)} {text.share(it.busy / lanes.length)}" for it in lanes.lanes)
    steps = text.count(len(lanes.steps), "profiled step")
    return f"A timeline of {steps}, {_duration(lanes.length)} long. Share of that in which each lane was busy: {busy}."


def _notes(lanes: Lanes) -> Iterator[str]:
    yield (
        "Under the profiler everything takes longer than in the figures above, but the order of events and their "
        "waits are the same."
    )
    if lanes.steps_in_trace > len(lanes.steps):
        yield f"Shown are the last {text.count(len(lanes.steps), 'step')} of {lanes.steps_in_trace} in the trace."
    if lanes.merged_below:
        yield f"Neighbours shorter than {_duration(lanes.merged_below)} are drawn as one; the trace file has them all."


def _duration(nanoseconds: int) -> str:
    return text.duration(nanoseconds / 1e9)
