"""The steps by phase, line of the script and function, nested: where the training thread was seen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from hotlap.diagnose.profile import Profile
from hotlap.evidence import RunEvidence, SampledLine
from hotlap.render import text
from hotlap.render.account import SHOWN_PHASES, ShownPhase
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.html.two_parts import AFTER, BEFORE, Part, headings, row_axis, rows_of, starts
from hotlap.render.material import Material

order = 81

_ROW_PIXELS = 26
_SMALLEST_SHARE = 0.002
"""A smaller part of all samples is less than a pixel wide, and left out."""

_MOST_BARS = 400
_ROWS = 15
_SHORTEST_LABEL_PIXELS = 30
_NOTABLY_LONGER = 1.1


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


@dataclass(frozen=True, slots=True)
class _Side:
    """The observed steps without or with the plan; ``phases`` are those in which samples were seen."""

    name: str
    evidence: RunEvidence
    phases: tuple[tuple[ShownPhase, _Node], ...]

    @property
    def total(self) -> float:
        return sum(it.seconds for _, it in self.phases)


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart; none without samples of steps."""
    before = _side(BEFORE, material.profile)
    if before is None:
        return ()
    after = _side(AFTER, material.plan_profile)
    account = material.study.account_before
    undisturbed = account.wall if account is not None else 0.0
    return (_chart((before,) if after is None else (before, after), undisturbed),)


def _side(name: str, profile: Profile | None) -> _Side | None:
    if profile is None or profile.evidence.observed_steps <= 0:
        return None
    phases = [(it, _tree(profile.evidence, it)) for it in SHOWN_PHASES]
    shown = tuple((phase, it) for phase, it in phases if it.seconds > 0)
    return _Side(name, profile.evidence, shown) if shown else None


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


def _chart(sides: tuple[_Side, ...], undisturbed_seconds: float) -> Chart:
    bars = [_side_bars(it, sides) for it in sides]
    seen = {phase for side in sides for phase, _ in side.phases}
    legend = tuple((it.title, f"var({it.variable})") for it in SHOWN_PHASES if it in seen)
    two = len(sides) > 1
    return Chart(
        name="flame",
        title="A step line by line, before and after" if two else "A step of the unmodified script, line by line",
        description=f"Nested bars of where the training thread was in a step: {'; '.join(map(_in_words, sides))}.",
        drawn=_drawn(sides, bars, legend),
        table=_table(sides),
        legend=legend,
        notes=tuple(_notes(sides, undisturbed_seconds)),
        zooms=True,
        searches=True,
        stretch="phase",
    )


def _in_words(side: _Side) -> str:
    parts = ", ".join(f"{it.name} {text.share(it.seconds / side.total)}" for _, it in side.phases)
    return f"{side.name} {text.duration(side.total)}, of which {parts}"


def _notes(sides: tuple[_Side, ...], undisturbed_seconds: float) -> Iterator[str]:
    yield (
        "From top to bottom: the phase, the line of the script, the function it called, and the one that was running. "
        "Each bar is as wide as the time spent there; the order within a step is not shown."
    )
    if len(sides) > 1:
        yield "Both parts have the same scale: what is narrower or missing below takes less time with the plan."
    counts = " and ".join(
        f"{text.count(it.evidence.sampled.samples, 'sample')} over {text.count(it.evidence.observed_steps, 'step')}"
        + (f" {it.name}" if len(sides) > 1 else "")
        for it in sides
    )
    total = sides[0].total
    longer = ""
    if undisturbed_seconds > 0 and total > _NOTABLY_LONGER * undisturbed_seconds:
        longer = (
            f" Being observed, a step took {text.duration(total)}; otherwise it takes "
            f"{text.duration(undisturbed_seconds)}."
        )
    yield f"The training thread's position was sampled: {counts}.{longer}"


def _side_bars(side: _Side, sides: Sequence[_Side]) -> list[Specification]:
    longest = max(it.total for it in sides)
    found = sorted(_bars(side, longest), key=lambda it: it["start"] - it["end"])
    return found[: _MOST_BARS // len(sides)]


def _bars(side: _Side, longest: float) -> Iterator[Specification]:
    start = 0.0
    for _, root in side.phases:
        for it in _bars_of(root, root.name, start, 0, longest):
            yield {**it, "share": text.share((it["end"] - it["start"]) / 1e3 / side.total)}
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
    }
    for it in sorted(node.parts.values(), key=lambda it: -it.seconds):
        yield from _bars_of(it, phase, start, level + 1, total)
        start += it.seconds


def _short(name: str) -> str:
    """``zoom`` for ``scipy.ndimage.zoom``; a place in the script, which has a space, as it is."""
    return name if " " in name else name.rpartition(".")[2]


def _parts(sides: Sequence[_Side], bars: Sequence[Sequence[Specification]]) -> list[Part]:
    return [
        Part(
            side.name,
            f"{side.name.capitalize()}: {text.duration(side.total)} per step",
            tuple(map(str, range(1 + max(it["level"] for it in of)))),
        )
        for side, of in zip(sides, bars, strict=True)
    ]


def _drawn(
    sides: Sequence[_Side], bars: Sequence[Sequence[Specification]], legend: tuple[tuple[str, str], ...]
) -> Specification:
    parts = _parts(sides, bars)
    end = max(it.total for it in sides) * 1e3
    rows = [{**it, "row": part.row(str(it["level"]))} for part, of in zip(parts, bars, strict=True) for it in of]
    phases = [
        sorted(
            ({"start": it["start"], "name": it["name"]} for it in of if it["level"] == 0), key=lambda it: it["start"]
        )
        for of in bars
    ]
    domain = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}, "nice": False, "zero": False}
    x = {"type": "quantitative", "title": "ms per step", "scale": domain, "axis": {"format": ",.4~r"}}
    y = row_axis(parts, labels=False)
    colour = {"field": "phase", "scale": colours(legend)}
    other = {"test": "sought !== '' && indexof(lower(datum.name), sought) < 0", "value": 0.05}
    narrow = f"(datum.end - datum.start) / (to - from) * width < {_SHORTEST_LABEL_PIXELS} || datum.end < from"
    label = {"condition": {"test": narrow, "value": ""}, "field": "label"}
    return specification(
        height=_ROW_PIXELS * len(rows_of(parts)),
        params=[{"name": "from", "value": 0}, {"name": "to", "value": end}, {"name": "sought", "value": ""}],
        layer=[
            *starts(parts, phases, x, y),
            {
                "data": {"name": "spans", "values": rows},
                "mark": {"type": "bar", "clip": True, "height": {"band": 0.92}, "strokeWidth": 1},
                "encoding": {
                    "x": {**x, "field": "start"},
                    "x2": {"field": "end"},
                    "y": {**y, "field": "row"},
                    "color": colour,
                    "stroke": colour,
                    "fillOpacity": {"condition": other, "value": 0.3},
                    "strokeOpacity": {"condition": {**other, "value": 0.3}, "value": 1},
                    "tooltip": [{"field": it} for it in ("name", "phase", "time", "share")],
                },
            },
            {
                "data": {"name": "labels", "values": rows},
                "transform": [{"calculate": "max(datum.start, from)", "as": "at"}],
                "mark": {
                    "type": "text", "align": "left", "dx": 4, "fontSize": 11, "clip": True,
                    "limit": {"expr": "max(8, (min(datum.end, to) - datum.at) / (to - from) * width - 8)"},
                },
                "encoding": {"x": {**x, "field": "at"}, "y": {**y, "field": "row"}, "text": label},
            },
            *headings(parts, y),
        ],
    )  # fmt: skip


def _table(sides: Sequence[_Side]) -> Table:
    """The costliest lines; with the plan also what they take then."""
    seconds = [
        {(it.name, root.name): it.seconds for _, root in side.phases for it in root.parts.values()} for side in sides
    ]
    lines = sorted({it for of in seconds for it in of}, key=lambda it: (-max(of.get(it, 0.0) for of in seconds), it))
    rows = []
    for it in lines[:_ROWS]:
        cells = [it[0], it[1]]
        for side, of in zip(sides, seconds, strict=True):
            spent = of.get(it, 0.0)
            cells += [text.duration(spent) if spent else "none", text.share(spent / side.total)]
        rows.append(tuple(cells))
    if len(sides) == 1:
        return Table(("line", "phase", ">per step", ">of the step"), tuple(rows))
    names = (name for it in sides for name in (f">per step {it.name}", f">of the step {it.name}"))
    return Table(("line", "phase", *names), tuple(rows))
