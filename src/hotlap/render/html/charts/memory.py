"""Memory at the end of each step that was watched, before and after."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hotlap.evidence import MemoryTimeline
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import LIMIT_IN_SIGHT, colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.html.two_parts import AFTER, BEFORE
from hotlap.render.material import Material

order = 70

_FEWEST = 3
_LARGEST_BOTTOM = 0.8
"""The axis begins at most at this share of the peak, so that small changes look small."""

_BELOW = 0.98
"""So that the lowest line is not drawn on the axis."""

_KINDS = {
    "device, allocated": ("allocated_bytes", "var(--kept)"),
    "device, reserved": ("reserved_bytes", "var(--not-kept)"),
    "host": ("host_bytes", "var(--verified)"),
}

_SIDE_COLOURS = {BEFORE: "var(--as-it-is)", AFTER: "var(--kept)"}
_MEANINGS = {
    "device, allocated": "Allocated is what the device's tensors take.",
    "device, reserved": "Reserved is what PyTorch's allocator holds for tensors: those that exist, and its cache.",
    "host": "Host is what the training process itself takes of the machine's memory.",
}


class _Line(NamedTuple):
    """Memory of one kind at the end of each watched step, on one side."""

    what: str
    side: str
    bytes: tuple[int, ...]

    def name(self, sides: int) -> str:
        return f"{self.what}, {self.side}" if sides > 1 else self.what


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    if material.profile is None:
        return ()
    after = material.plan_profile.evidence.memory if material.plan_profile is not None else None
    found = chart(material.profile.evidence.memory, after)
    return () if found is None else (found,)


def chart(memory: MemoryTimeline, after: MemoryTimeline | None = None) -> Chart | None:
    """Device and host memory over the watched steps, without and with the plan; None where fewer than three were
    watched."""
    before = _lines(memory, BEFORE)
    with_plan = _lines(after, AFTER) if after is not None else []
    lines = [*before, *(it for it in with_plan if it.what in {one.what for one in before})]
    if not before:
        return None
    sides = len({it.side for it in lines})
    kinds = list(dict.fromkeys(it.what for it in lines))
    peak, least = max(max(it.bytes) for it in lines), min(min(it.bytes) for it in lines)
    unit, unit_name = (2**30, "GiB") if peak >= 2**30 else (2**20, "MiB")
    legend = _legend(lines, kinds, sides)
    limit = max(memory.limit_bytes, after.limit_bytes if after is not None else 0)
    return Chart(
        name="memory",
        title="Memory step by step, before and after" if sides > 1 else "Memory of the unmodified script, step by step",
        description="Lines of memory at the end of each watched step: "
        + "; ".join(f"{it.name(sides)} {_in_words(it.bytes)}" for it in lines)
        + ".",
        drawn=_drawn(lines, legend, peak, least, limit, unit, unit_name),
        table=Table(
            ("", ">at first", ">at the end", ">most"),
            tuple((it.name(sides), *map(text.size, (it.bytes[0], it.bytes[-1], max(it.bytes)))) for it in lines),
        ),
        legend=legend,
        notes=tuple(_notes(memory, after if sides > 1 else None, kinds, peak, limit)),
    )


def _lines(memory: MemoryTimeline, side: str) -> list[_Line]:
    columns = [_Line(name, side, getattr(memory, field)) for name, (field, _) in _KINDS.items()]
    return [it for it in columns if len(it.bytes) >= _FEWEST]


def _legend(lines: list[_Line], kinds: list[str], sides: int) -> tuple[tuple[str, str], ...]:
    """A colour for each kind; for each side where there is only one kind."""
    if sides > 1 and len(kinds) == 1:
        return tuple((it.name(sides), _SIDE_COLOURS[it.side]) for it in lines)
    return tuple((it, _KINDS[it][1]) for it in kinds)


def _drawn(
    lines: list[_Line],
    legend: tuple[tuple[str, str], ...],
    peak: int,
    least: int,
    limit: int,
    unit: int,
    unit_name: str,
) -> Specification:
    sides = len({it.side for it in lines})
    names = dict(legend)
    values = [
        {
            "step": step,
            "memory": amount / unit,
            "what": it.what if it.what in names else it.name(sides),
            "side": it.side,
            "line": it.name(sides),
            "label": text.size(amount),
        }
        for it in lines
        for step, amount in enumerate(it.bytes, start=1)
    ]
    x = {"field": "step", "type": "quantitative", "title": "watched step", "axis": {"tickMinStep": 1}}
    bottom = min(_BELOW * least, _LARGEST_BOTTOM * peak) / unit
    y = {"type": "quantitative", "title": unit_name, "scale": {"domainMin": bottom, "zero": False}}
    dash = {"condition": {"test": f"datum.side === '{BEFORE}'", "value": [5, 3]}, "value": [1, 0]}
    layers: list[Specification] = [
        {
            "data": {"values": values},
            "mark": {"type": "line", "point": {"size": 18}, "strokeWidth": 2},
            "encoding": {
                "x": {**x, "scale": {"nice": False}},
                "y": {**y, "field": "memory"},
                "color": {"field": "what", "scale": colours(legend)},
                "detail": {"field": "line"},
                **({"strokeDash": dash} if sides > 1 else {}),
                "tooltip": [
                    {"field": "line", "title": "what"},
                    {"field": "step"},
                    {"field": "label", "title": "memory"},
                ],
            },
        }
    ]
    if limit and limit < LIMIT_IN_SIGHT * peak:
        layers.append(
            {
                "data": {"values": [{"memory": limit / unit}]},
                "mark": {"type": "rule", "strokeDash": [2, 3]},
                "encoding": {"y": {**y, "field": "memory"}},
            }
        )
    return specification(height=200, layer=layers)


def _in_words(column: tuple[int, ...]) -> str:
    return f"from {text.size(column[0])} to {text.size(column[-1])}"


def _notes(
    memory: MemoryTimeline, after: MemoryTimeline | None, kinds: list[str], peak: int, limit: int
) -> Iterator[str]:
    yield " ".join(_MEANINGS[it] for it in kinds)
    if after is not None:
        yield "Dashed lines: the unmodified script. Solid lines: the same steps with the plan."
    sides = [(memory, f" {BEFORE}"), (after, f" {AFTER}")] if after is not None else [(memory, "")]
    peaks = [f"{text.size(of.peak_allocated_bytes)}{side}" for of, side in sides if of.peak_allocated_bytes]
    if peaks:
        yield f"Within steps the device held up to {' and '.join(peaks)}."
    if limit:
        drawn = " (the dotted line)" if limit < LIMIT_IN_SIGHT * peak else ""
        yield f"The device has {text.size(limit)}{drawn}."
    retries = [f"{text.count(of.retries, 'time')}{side}" for of, side in sides if of.retries]
    if retries:
        yield f"The allocator had to free its cache {' and '.join(retries)}."
