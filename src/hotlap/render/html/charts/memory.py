"""Memory at the end of each step that was watched."""

from __future__ import annotations

from hotlap.evidence import MemoryTimeline
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import LIMIT_IN_SIGHT, colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 70

_FEWEST = 3
_LARGEST_BOTTOM = 0.8
"""The axis begins at most at this share of the peak, so that small changes look small."""

_KINDS = {
    "device, allocated": ("allocated_bytes", "var(--kept)"),
    "device, reserved": ("reserved_bytes", "var(--not-kept)"),
    "host": ("host_bytes", "var(--as-it-is)"),
}

_MEANINGS = {
    "device, allocated": "Allocated is what the device's tensors take.",
    "device, reserved": "Reserved is what PyTorch's allocator holds for tensors: those that exist, and its cache.",
    "host": "Host is what the training process itself takes of the machine's memory.",
}


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.profile.evidence.memory) if material.profile is not None else None
    return () if found is None else (found,)


def chart(memory: MemoryTimeline) -> Chart | None:
    """Device and host memory over the watched steps; None where fewer than three were watched."""
    columns = {name: getattr(memory, field) for name, (field, _) in _KINDS.items()}
    shown = {name: it for name, it in columns.items() if len(it) >= _FEWEST}
    if not shown:
        return None
    peak, least = max(map(max, shown.values())), min(map(min, shown.values()))
    unit, unit_name = (2**30, "GiB") if peak >= 2**30 else (2**20, "MiB")
    values = [
        {"step": step, "memory": amount / unit, "what": name, "label": text.size(amount)}
        for name, column in shown.items()
        for step, amount in enumerate(column, start=1)
    ]
    legend = tuple((name, _KINDS[name][1]) for name in shown)
    colour = {"field": "what", "scale": colours(legend)}
    x = {"field": "step", "type": "quantitative", "title": "watched step", "axis": {"tickMinStep": 1}}
    bottom = min(least, _LARGEST_BOTTOM * peak) / unit
    y = {"type": "quantitative", "title": unit_name, "scale": {"domainMin": bottom, "zero": False}}
    layers: list[Specification] = [
        {
            "data": {"values": values},
            "mark": {"type": "line", "point": True, "strokeWidth": 2},
            "encoding": {
                "x": {**x, "scale": {"nice": False}},
                "y": {**y, "field": "memory"},
                "color": colour,
                "tooltip": [{"field": "what"}, {"field": "step"}, {"field": "label", "title": "memory"}],
            },
        }
    ]
    if memory.limit_bytes and memory.limit_bytes < LIMIT_IN_SIGHT * peak:
        limit = {"memory": memory.limit_bytes / unit}
        layers.append(
            {
                "data": {"values": [limit]},
                "mark": {"type": "rule", "strokeDash": [4, 3]},
                "encoding": {"y": {**y, "field": "memory"}},
            }
        )
    return Chart(
        name="memory",
        title="Memory of the unmodified script, step by step",
        description="Lines of memory at the end of each watched step: "
        + "; ".join(map(_in_words, shown.items()))
        + ".",
        drawn=specification(height=200, layer=layers),
        table=Table(
            ("", ">at first", ">at the end", ">most"),
            tuple((name, *map(text.size, (it[0], it[-1], max(it)))) for name, it in shown.items()),
        ),
        legend=legend,
        notes=(" ".join(_MEANINGS[name] for name in shown), *_notes(memory, peak)),
    )


def _in_words(of: tuple[str, tuple[int, ...]]) -> str:
    name, column = of
    return f"{name} from {text.size(column[0])} to {text.size(column[-1])}"


def _notes(memory: MemoryTimeline, peak: int) -> list[str]:
    notes = []
    if memory.peak_allocated_bytes:
        notes.append(f"Within steps the device held up to {text.size(memory.peak_allocated_bytes)}.")
    if memory.limit_bytes:
        drawn = " (the dashed line)" if memory.limit_bytes < LIMIT_IN_SIGHT * peak else ""
        notes.append(f"The device has {text.size(memory.limit_bytes)}{drawn}.")
    if memory.retries:
        notes.append(f"The allocator had to free its cache {memory.retries} times.")
    return notes
