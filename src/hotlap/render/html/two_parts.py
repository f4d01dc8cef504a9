"""Drawings in two parts on one scale: the unmodified script, and below it the same with the plan.

Rows of both parts share one axis, so that one search and one zoom serve both. With one part there is no heading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hotlap.render.html.parts import Specification

BEFORE, AFTER = "before", "after"
_BETWEEN = "|"


@dataclass(frozen=True, slots=True)
class Part:
    """One side: its name (``before``), what its heading says, and the labels of its rows from top to bottom."""

    name: str
    heading: str
    rows: tuple[str, ...]

    def row(self, label: str) -> str:
        """The identifier of a row, which differs between the parts."""
        return f"{self.name}{_BETWEEN}{label}"


def rows_of(parts: Sequence[Part]) -> list[str]:
    """All rows from top to bottom; with two parts the first row of each is for its heading."""
    found: list[str] = []
    for it in parts:
        found += [it.row("")] * (len(parts) > 1) + [it.row(label) for label in it.rows]
    return found


def row_axis(parts: Sequence[Part], *, labels: bool = True) -> Specification:
    """The vertical axis of the rows, without its field."""
    axis = {"labelExpr": f"slice(datum.label, indexof(datum.label, '{_BETWEEN}') + 1)", "labelLimit": 150}
    drawn = {**axis, "ticks": False, "domain": False} if len(parts) > 1 else axis
    scale = {"domain": rows_of(parts)}
    return {"type": "nominal", "sort": None, "scale": scale, "title": None, "axis": drawn if labels else None}


def headings(parts: Sequence[Part], y: Specification) -> list[Specification]:
    """The layer of the headings; none with one part."""
    if len(parts) < 2:
        return []
    return [
        {
            "data": {"name": "headings", "values": [{"row": it.row(""), "heading": it.heading} for it in parts]},
            "mark": {"type": "text", "align": "left", "baseline": "middle", "dx": 1, "dy": 3, "fontWeight": "bold"},
            "encoding": {"x": {"value": 0}, "y": {**y, "field": "row"}, "text": {"field": "heading"}},
        }
    ]


def starts(
    parts: Sequence[Part], of: Sequence[Sequence[Specification]], x: Specification, y: Specification
) -> list[Specification]:
    """Dashed lines at the ``start`` of what ``of`` lists for each part, through the rows of that part.

    Those of the first part are named ``steps``, by which the page moves about.
    """
    layers: list[Specification] = []
    for number, (part, values) in enumerate(zip(parts, of, strict=True)):
        top, bottom = part.row(part.rows[0]), part.row(part.rows[-1])
        layers.append(
            {
                "data": {
                    "name": "steps" if not number else f"steps-{part.name}",
                    "values": [{**it, "top": top, "bottom": bottom} for it in values],
                },
                "mark": {"type": "rule", "clip": True, "color": "var(--edge)", "strokeDash": [2, 2]},
                "encoding": {
                    "x": {**x, "field": "start"},
                    "y": {**y, "field": "top", "bandPosition": 0},
                    "y2": {"field": "bottom", "bandPosition": 1},
                },
            }
        )
    return layers
