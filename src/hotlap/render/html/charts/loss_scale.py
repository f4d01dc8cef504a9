"""The scale of the gradient scaler: step by step where the script was profiled, over time where it was watched."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.diagnose.loss_scale import ScaleHistory, scale_history
from hotlap.records import WatchedSeries
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 72

_FEWEST = 3
_MOST_ROWS = 12
_SKIPPED = "skipped steps before it"
_LEGEND = (("scale", "var(--kept)"), (_SKIPPED, "var(--not-kept)"))


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    history = scale_history(material.profile.evidence.numbers) if material.profile is not None else None
    if history is not None:
        return () if len(history.scales) < _FEWEST else (_by_step(history),)
    watch = material.study.watch
    found = _over_time(watch.series) if watch is not None else None
    return () if found is None else (found,)


def _by_step(history: ScaleHistory) -> Chart:
    rows = [
        {"x": step, "scale": scale, "skipped": skipped}
        for step, (scale, skipped) in enumerate(zip(history.scales, history.skipped, strict=True), start=1)
    ]
    layers = [_line(rows, "profiled step")]
    after_skips = [{**it, "what": _SKIPPED} for it in rows if it["skipped"]]
    if after_skips:
        layers.append(
            {
                "data": {"values": after_skips},
                "mark": {"type": "point", "filled": True, "size": 46},
                "encoding": {
                    "x": _x("profiled step"),
                    "y": _Y,
                    "color": {"field": "what", "scale": colours(_LEGEND)},
                    "tooltip": [{"field": "x", "title": "step"}, {"field": "scale"}, {"field": "skipped"}],
                },
            }
        )
    return Chart(
        name="loss-scale",
        title="Scale of the gradient scaler, step by step",
        description=(
            f"A line of the scale from {history.scales[0]:g} to {history.scales[-1]:g} over "
            f"{text.count(len(history.scales), 'step')}, with {text.count(sum(history.skipped), 'skipped step')}."
        ),
        drawn=specification(height=160, layer=layers),
        table=Table(
            (">step", ">scale", ">skipped before it"),
            tuple((f"{it['x']}", f"{it['scale']:g}", f"{it['skipped']}") for it in _some(_changes(rows))),
        ),
        legend=_LEGEND if after_skips else _LEGEND[:1],
        notes=("The table has the first and last step, and those at which the scale changed or steps were skipped.",),
    )


def _over_time(series: WatchedSeries) -> Chart | None:
    rows = [
        {"x": at, "scale": scale, "skipped": 0}
        for at, scale in zip(series.at_seconds, series.loss_scale, strict=False)
        if scale is not None
    ]
    if len(rows) < _FEWEST:
        return None
    return Chart(
        name="loss-scale",
        title="Scale of the gradient scaler over the run",
        description=f"A line of the scale from {rows[0]['scale']:g} to {rows[-1]['scale']:g}.",
        drawn=specification(height=160, layer=[_line(rows, "seconds")]),
        table=Table(
            (">after", ">scale"),
            tuple((text.duration(it["x"]), f"{it['scale']:g}") for it in _some(_changes(rows))),
        ),
        legend=_LEGEND[:1],
    )


_Y: Specification = {"field": "scale", "type": "quantitative", "title": "scale", "scale": {"type": "log", "base": 2}}


def _x(name: str) -> Specification:
    return {"field": "x", "type": "quantitative", "title": name, "scale": {"nice": False, "zero": False}}


def _line(rows: Sequence[dict[str, float]], x_title: str) -> Specification:
    return {
        "data": {"values": [{**it, "what": "scale"} for it in rows if it["scale"] > 0]},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2},
        "encoding": {"x": _x(x_title), "y": _Y, "color": {"field": "what", "scale": colours(_LEGEND)}},
    }


def _changes(rows: Sequence[dict[str, float]]) -> list[dict[str, float]]:
    """The first and last row, and those whose scale differs from the row before or that follow a skipped step."""
    return [
        it
        for number, it in enumerate(rows)
        if number in (0, len(rows) - 1) or it["skipped"] or it["scale"] != rows[number - 1]["scale"]
    ]


def _some(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    """Some rows, evenly spaced, including the first and the last."""
    if len(rows) <= _MOST_ROWS:
        return rows
    return [rows[round(it * (len(rows) - 1) / (_MOST_ROWS - 1))] for it in range(_MOST_ROWS)]
