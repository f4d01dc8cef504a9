"""Speed against quality of all forms of a model that were compared, with their Pareto front."""

from __future__ import annotations

from typing import Any

from hotlap.objective import pareto_front
from hotlap.records import Candidate, Study
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

order = 24
CANDIDATES = "candidates"

_HEIGHT = 220
_FEWEST = 2
_RECOMMENDED, _FRONT, _OTHER, _REFUSED = "recommended", "Pareto front", "dominated", "not recommendable"
_LEGEND = (
    (_RECOMMENDED, "var(--kept)"),
    (_FRONT, "var(--as-it-is)"),
    (_OTHER, "var(--edge)"),
    (_REFUSED, "var(--differ)"),
)


def for_page(material: Material) -> tuple[Chart, ...]:
    """None with fewer than two candidates whose outputs were compared."""
    study = material.study
    compared = [(it, found) for it in study.candidates if (found := _quality(it)) is not None]
    if len(compared) < _FEWEST:
        return ()
    front = pareto_front(study.candidates)
    values: list[dict[str, Any]] = [
        {
            "name": _name(it),
            "speed": it.comparison.speed.speedup.value,
            "low": it.comparison.speed.speedup.low,
            "high": it.comparison.speed.speedup.high,
            "quality": quality,
            "kind": _kind(study, it, front),
        }
        for it, quality in compared
    ]
    rows = tuple(
        (
            it["name"],
            text.ratio(it["speed"]),
            f"{it['quality']:.4g}",
            text.size(one.comparison.candidate_peak_bytes),
            it["kind"],
        )
        for it, (one, _) in zip(values, compared, strict=True)
    )
    kinds = {it["kind"] for it in values}
    return (
        Chart(
            name=CANDIDATES,
            title="Speed and quality of the candidates",
            description="Points of speed and quality: " + "; ".join(f"{it[0]} {it[1]}, {it[2]}" for it in rows) + ".",
            drawn=_drawing(values),
            table=Table(("candidate", ">speed", ">quality", ">memory", "it is"), rows),
            legend=tuple(it for it in _LEGEND if it[0] in kinds),
            notes=("The Pareto front counts latency, peak memory and memory at rest too.",),
        ),
    )


def _quality(it: Candidate) -> float | None:
    return it.comparison.quality.likeness if it.comparison.quality is not None else None


def _kind(study: Study, it: Candidate, front: tuple[Candidate, ...]) -> str:
    if it.plan == study.plan:
        return _RECOMMENDED
    if it.comparison.quality is not None and not it.comparison.quality.verified:
        return _REFUSED
    return _FRONT if it in front else _OTHER


def _name(it: Candidate) -> str:
    return ", ".join(text.setting(one) for one in it.plan.settings)


def _drawing(values: list[dict[str, Any]]) -> dict[str, Any]:
    x = {"type": "quantitative", "title": "times as fast", "scale": {"zero": False}}
    y = {"field": "quality", "type": "quantitative", "title": "quality", "scale": {"zero": False}}
    point = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    colour = {"field": "kind", "scale": colours(_LEGEND)}
    interval = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    return specification(
        height=_HEIGHT,
        data={"values": values},
        layer=[
            {"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": interval},
            {"mark": point, "encoding": {"x": {**x, "field": "speed"}, "y": y, "color": colour}},
        ],
    )
