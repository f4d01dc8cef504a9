"""The predicted efficiency by number of ranks, a line for each strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hotlap.records import ScalePoint, ScalePrediction, Strategy
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material
from hotlap.render.scaling import CURVE_HEADINGS, NOT_VALIDATED, STRATEGY_NAMES, curve_rows

order = 59

_HEIGHT = 220
_FEWEST_RANKS = 2
_COLOURS: Final[dict[Strategy, str]] = {
    "ddp": "var(--kept)",
    "zero-1": "var(--verified)",
    "fsdp2": "var(--communication)",
}


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart; none where a single number of ranks was predicted."""
    found = material.study.scale
    if found is None:
        return ()
    points = [it for it in found.points if it.ranks > 1]
    return (_chart(found, points),) if len({it.ranks for it in points}) >= _FEWEST_RANKS else ()


def _chart(found: ScalePrediction, points: Sequence[ScalePoint]) -> Chart:
    shown = [it for it in STRATEGY_NAMES if any(point.strategy == it for point in points)]
    legend = tuple((STRATEGY_NAMES[it], _COLOURS[it]) for it in shown)
    ranks = sorted({it.ranks for it in points})
    at = {
        "field": "ranks",
        "type": "quantitative",
        "title": "ranks",
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {"values": ranks, "format": "~r", "grid": False},
    }
    y = {
        "field": "efficiency",
        "type": "quantitative",
        "title": "efficiency, %",
        "scale": {"domain": [0, 100]},
        "axis": {"grid": True},
    }
    colour = {"field": "strategy", "scale": colours(legend)}
    tooltip = [{"field": it} for it in ("strategy", "ranks", "step", "share", "memory")]
    return Chart(
        name="scaling",
        title="Predicted efficiency, by number of ranks",
        description=f"Lines of efficiency by number of ranks: {'; '.join(_line(points, it) for it in shown)}.",
        drawn=specification(
            height=_HEIGHT,
            data={"values": [_row(it) for it in points]},
            layer=[
                {"mark": {"type": "line", "strokeWidth": 1.5}, "encoding": {"x": at, "y": y, "color": colour}},
                {
                    "transform": [{"filter": "datum.fits"}],
                    "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                    "encoding": {"x": at, "y": y, "color": colour, "tooltip": tooltip},
                },
                {
                    "transform": [{"filter": "!datum.fits"}],
                    "mark": {"type": "point", "shape": "cross", "filled": True, "size": 60, "opacity": 1},
                    "encoding": {"x": at, "y": y, "color": colour, "tooltip": tooltip},
                },
            ],
        ),
        table=Table(CURVE_HEADINGS, curve_rows(found)),
        legend=legend,
        notes=_notes(found, points),
    )


def _row(point: ScalePoint) -> dict[str, object]:
    return {
        "ranks": point.ranks,
        "efficiency": 100 * point.efficiency,
        "strategy": STRATEGY_NAMES[point.strategy],
        "step": text.duration(point.step_seconds),
        "share": text.share(point.efficiency),
        "memory": text.size(point.peak_bytes) if point.peak_bytes else "unknown",
        "fits": point.fits is not False,
    }


def _line(points: Sequence[ScalePoint], strategy: Strategy) -> str:
    own = sorted((it for it in points if it.strategy == strategy), key=lambda it: it.ranks)
    ends = f"{text.share(own[0].efficiency)} on {own[0].ranks} ranks"
    if len(own) > 1:
        ends += f", {text.share(own[-1].efficiency)} on {own[-1].ranks}"
    return f"{STRATEGY_NAMES[strategy]} {ends}"


def _notes(found: ScalePrediction, points: Sequence[ScalePoint]) -> tuple[str, ...]:
    notes = ["Efficiency is the step of one device as a share of the step of so many, each with its own batch."]
    if any(it.fits is False for it in points):
        notes.append("A cross: the strategy needs more memory than a device has.")
    if not found.errors:
        notes.append(NOT_VALIDATED)
    return tuple(notes)
