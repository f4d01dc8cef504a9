"""The largest memory of a launch, before and after, with intervals over replicates."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from hotlap.gain import comparison_of_plan
from hotlap.objective import metric_of
from hotlap.records import Comparison, Estimate
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import PADDING_FOR_LABELS, colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

order = 68

_ROW_PIXELS = 26
_LEGEND = (("before", "var(--as-it-is)"), ("after", "var(--kept)"))
_MEANINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "device_peak_bytes": ("device", "The device's peak is the most that tensors took at once."),
        "host_peak_bytes": ("host", "The host's peak is the most that the script's processes had in memory at once."),
    }
)


class _Peak(NamedTuple):
    """A bar."""

    what: str
    side: str
    bytes: Estimate

    @property
    def name(self) -> str:
        return f"{self.what}, {self.side}"

    @property
    def label(self) -> str:
        return text.size(self.bytes.value)


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart; none where no peak was measured on both sides."""
    comparison = comparison_of_plan(material.study)
    peaks = _peaks(comparison) if comparison is not None else []
    return (_chart(peaks),) if peaks else ()


def _peaks(comparison: Comparison) -> list[_Peak]:
    found: list[_Peak] = []
    for name, (what, _) in _MEANINGS.items():
        metric = metric_of(comparison, name)
        if metric is not None and metric.baseline is not None and metric.candidate is not None:
            found += [_Peak(what, "before", metric.baseline), _Peak(what, "after", metric.candidate)]
    return found


def _chart(peaks: list[_Peak]) -> Chart:
    unit, unit_name = (2**30, "GiB") if max(it.bytes.value for it in peaks) >= 2**30 else (2**20, "MiB")
    values = [
        {
            "name": it.name,
            "side": it.side,
            "memory": it.bytes.value / unit,
            "low": it.bytes.low / unit,
            "high": it.bytes.high / unit,
            "label": it.label,
        }
        for it in peaks
    ]
    y = {"field": "name", "type": "nominal", "sort": [it.name for it in peaks], "title": None}
    x = {"type": "quantitative", "title": f"{unit_name} at most", "scale": {"nice": False, "zero": True}}
    bar = {"x": {**x, "field": "memory"}, "color": {"field": "side", "scale": colours(_LEGEND)}}
    shown = dict.fromkeys(it.what for it in peaks)
    return Chart(
        name="memory-peaks",
        title="Peak memory, before and after",
        description=f"Bars of peak memory: {', '.join(f'{it.name} {it.label}' for it in peaks)}.",
        drawn=specification(
            height=_ROW_PIXELS * len(peaks),
            padding=PADDING_FOR_LABELS,
            data={"values": values},
            encoding={"y": y},
            layer=[
                {"mark": {"type": "bar", "height": {"band": 0.7}}, "encoding": bar},
                {
                    "mark": {"type": "rule", "strokeWidth": 2},
                    "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
                },
                {
                    "mark": {"type": "text", "align": "left", "dx": 6},
                    "encoding": {"x": {**x, "field": "high"}, "text": {"field": "label"}},
                },
            ],
        ),
        table=Table(
            ("", ">peak", ">low", ">high"),
            tuple((it.name, it.label, text.size(it.bytes.low), text.size(it.bytes.high)) for it in peaks),
        ),
        legend=_LEGEND,
        notes=(
            *(meaning for what, meaning in _MEANINGS.values() if what in shown),
            "Bars are means over replicates, thin lines their intervals.",
            "A peak on the first screen is the largest of all launches.",
        ),
    )
