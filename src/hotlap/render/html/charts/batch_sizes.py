"""Samples per second of the model alone by the size of its batch."""

from __future__ import annotations

from hotlap.records import Estimate, Study
from hotlap.render import text
from hotlap.render.batch_sizes import HEADINGS, batch_remark, batch_rows
from hotlap.render.blocks import Table
from hotlap.render.disturbance import batch_doubt
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

order = 60

_HEIGHT = 200
_OWN = "unmodified"
_OTHER = "another size"
_LEGEND = ((_OWN, "var(--as-it-is)"), (_OTHER, "var(--kept)"))
_FEWEST = 2


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study)
    return () if found is None else (found,)


def chart(study: Study) -> Chart | None:
    """A line through the sizes, with intervals; None where fewer than two were timed."""
    timed = [it for it in study.batch_rates if not it.error and it.seconds_per_sample > 0]
    own = next((it for it in timed if it.speedup is None), None)
    if own is None or len(timed) < _FEWEST:
        return None
    level = 1 / own.seconds_per_sample
    points = [(it.samples_per_step, it.speedup or Estimate(value=1.0, low=1.0, high=1.0)) for it in timed]
    values = [
        {
            "samples": samples,
            "rate": level * speedup.value,
            "low": level * speedup.low,
            "high": level * speedup.high,
            "kind": _OWN if samples == own.samples_per_step else _OTHER,
        }
        for samples, speedup in points
    ]
    sizes = [samples for samples, _ in points]
    x = {"type": "quantitative", "title": "samples per step", "scale": {"type": "log", "base": 2, "nice": False}}
    x |= {"axis": {"values": sizes, "format": "~r", "grid": False}}
    y = {"type": "quantitative", "title": "samples per second", "scale": {"zero": True}, "axis": {"grid": True}}
    at = {**x, "field": "samples"}
    colour = {"field": "kind", "scale": colours(_LEGEND)}
    return Chart(
        name="batch-sizes",
        title="The model alone, by the size of its batch",
        description="A line of samples per second: "
        + ", ".join(f"{text.number(samples)} per step {text.number(level * it.value)}" for samples, it in points)
        + ".",
        drawn=specification(
            height=_HEIGHT,
            data={"values": values},
            layer=[
                {
                    "mark": {"type": "line", "strokeWidth": 1.5, "color": "var(--edge)"},
                    "encoding": {"x": at, "y": {**y, "field": "rate"}},
                },
                {
                    "mark": {"type": "rule", "strokeWidth": 1.5},
                    "encoding": {"x": at, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                    "encoding": {"x": at, "y": {**y, "field": "rate"}, "color": colour},
                },
            ],
        ),
        table=Table(tuple(it or "remark" for it in HEADINGS), batch_rows(study.batch_rates)),
        legend=_LEGEND,
        notes=(batch_remark(study.batch_rates, batch_doubt(study)),),
    )
