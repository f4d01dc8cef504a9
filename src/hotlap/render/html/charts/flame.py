"""The steps by phase, line of the script and function, nested: where the training thread was seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath

from hotlap.evidence import RunEvidence, SampledLine
from hotlap.render import text
from hotlap.render.account import SHOWN_PHASES, ShownPhase
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 81

_ROW_PIXELS = 26
_SMALLEST_SHARE = 0.002
"""A smaller part of all samples is less than a pixel wide, and left out."""

_MOST_BARS = 400
_ROWS = 15
_SHORTEST_LABEL_PIXELS = 30


@dataclass(slots=True)
class _Node:
    """A part of the step: seconds per step, and what it consists of."""

    name: str
    seconds: float = 0.0
    parts: dict[str, _Node] = field(default_factory=dict)

    def add(self, path: tuple[str, ...], seconds: float) -> None:
        self.seconds += seconds
        if path:
            self.parts.setdefault(path[0], _Node(path[0])).add(path[1:], seconds)


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart; none without samples of steps."""
    evidence = material.profile.evidence if material.profile is not None else None
    if evidence is None or evidence.observed_steps <= 0:
        return ()
    phases = [(it, _tree(evidence, it)) for it in SHOWN_PHASES]
    shown = [(phase, it) for phase, it in phases if it.seconds > 0]
    return (_chart(evidence, shown),) if shown else ()


def _tree(evidence: RunEvidence, phase: ShownPhase) -> _Node:
    root = _Node(phase.title)
    for it in evidence.sampled.lines:
        if it.phase == phase.phase and it.seconds > 0:
            root.add(tuple(_path(it)), it.seconds / evidence.observed_steps)
    return root


def _path(line: SampledLine) -> Iterator[str]:
    """The line of the script, what it called, and what was running, each where it is another."""
    yield _place(line)
    last = ""
    for name in (line.called, line.innermost, line.native):
        shown = text.one_line(name, limit=90)
        if shown and shown != last:
            yield shown
            last = shown


def _place(line: SampledLine) -> str:
    if line.site is None:
        return "not in the script"
    name = f"{PurePath(line.site.file).name}:{line.site.line} {line.site.function}"
    return text.one_line(name, limit=90)


def _chart(evidence: RunEvidence, phases: list[tuple[ShownPhase, _Node]]) -> Chart:
    total = sum(it.seconds for _, it in phases)
    bars = sorted(_bars(phases, total), key=lambda it: it["start"] - it["end"])[:_MOST_BARS]
    starts = [{"start": it["start"], "name": it["name"]} for it in bars if it["level"] == 0]
    legend = tuple((phase.title, f"var({phase.variable})") for phase, _ in phases)
    parts = ", ".join(f"{it.name} {text.share(it.seconds / total)}" for _, it in phases)
    return Chart(
        name="flame",
        title="A step of the unmodified script, line by line",
        description=f"Nested bars of where the training thread was in a step: {parts}.",
        drawn=_drawn(bars, sorted(starts, key=lambda it: it["start"]), total * 1e3, legend),
        table=_table(phases, total),
        legend=legend,
        notes=(
            f"From {text.count(evidence.sampled.samples, 'sample')} of the training thread's position over "
            f"{text.count(evidence.observed_steps, 'observed step')}, start-up among the samples but not drawn. From "
            "top to bottom: the phase, the line of the script, the function it called, and the one that was running. "
            "Each bar is as wide as the time spent there; order within a step is not shown.",
        ),
        zooms=True,
        searches=True,
        stretch="phase",
    )


def _bars(phases: list[tuple[ShownPhase, _Node]], total: float) -> Iterator[Specification]:
    start = 0.0
    for _, root in phases:
        yield from _bars_of(root, root.name, start, 0, total)
        start += root.seconds


def _bars_of(node: _Node, phase: str, start: float, level: int, total: float) -> Iterator[Specification]:
    if node.seconds < _SMALLEST_SHARE * total:
        return
    yield {
        "name": node.name,
        "label": _short(node.name),
        "phase": phase,
        "level": level,
        "start": round(start * 1e3, 6),
        "end": round((start + node.seconds) * 1e3, 6),
        "time": f"{text.duration(node.seconds)} per step",
        "share": text.share(node.seconds / total),
    }
    for it in sorted(node.parts.values(), key=lambda it: -it.seconds):
        yield from _bars_of(it, phase, start, level + 1, total)
        start += it.seconds


def _short(name: str) -> str:
    """``zoom`` for ``scipy.ndimage.zoom``; a place in the script, which has a space, as it is."""
    return name if " " in name else name.rpartition(".")[2]


def _drawn(
    bars: list[Specification], starts: list[Specification], end: float, legend: tuple[tuple[str, str], ...]
) -> Specification:
    levels = 1 + max(it["level"] for it in bars)
    domain = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}, "nice": False, "zero": False}
    x = {"type": "quantitative", "title": "ms per step", "scale": domain, "axis": {"format": ",.4~r"}}
    y = {"field": "level", "type": "ordinal", "title": None, "sort": list(range(levels)), "axis": None}
    colour = {"field": "phase", "scale": colours(legend)}
    other = {"test": "sought !== '' && indexof(lower(datum.name), sought) < 0", "value": 0.05}
    narrow = f"(datum.end - datum.start) / (to - from) * width < {_SHORTEST_LABEL_PIXELS} || datum.end < from"
    label = {"condition": {"test": narrow, "value": ""}, "field": "label"}
    return specification(
        height=_ROW_PIXELS * levels,
        params=[{"name": "from", "value": 0}, {"name": "to", "value": end}, {"name": "sought", "value": ""}],
        layer=[
            {
                "data": {"name": "steps", "values": starts},
                "mark": {"type": "rule", "clip": True, "color": "var(--edge)", "strokeDash": [2, 2]},
                "encoding": {"x": {**x, "field": "start"}},
            },
            {
                "data": {"name": "spans", "values": bars},
                "mark": {"type": "bar", "clip": True, "height": {"band": 0.92}, "strokeWidth": 1},
                "encoding": {
                    "x": {**x, "field": "start"},
                    "x2": {"field": "end"},
                    "y": y,
                    "color": colour,
                    "stroke": colour,
                    "fillOpacity": {"condition": other, "value": 0.3},
                    "strokeOpacity": {"condition": {**other, "value": 0.3}, "value": 1},
                    "tooltip": [{"field": it} for it in ("name", "phase", "time", "share")],
                },
            },
            {
                "data": {"name": "labels", "values": bars},
                "transform": [{"calculate": "max(datum.start, from)", "as": "at"}],
                "mark": {
                    "type": "text", "align": "left", "dx": 4, "fontSize": 11, "clip": True,
                    "limit": {"expr": "max(8, (min(datum.end, to) - datum.at) / (to - from) * width - 8)"},
                },
                "encoding": {"x": {**x, "field": "at"}, "y": y, "text": label},
            },
        ],
    )  # fmt: skip


def _table(phases: list[tuple[ShownPhase, _Node]], total: float) -> Table:
    lines = [(root.name, it) for _, root in phases for it in root.parts.values()]
    rows = [
        (it.name, phase, text.duration(it.seconds), text.share(it.seconds / total))
        for phase, it in sorted(lines, key=lambda it: -it[1].seconds)[:_ROWS]
    ]
    return Table(("line", "phase", ">per step", ">of the step"), tuple(rows))
