"""What a step holds, operation by operation, as areas that can be zoomed."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import MemoryAccount
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material
from hotlap.render.memory import KIND_HEADINGS, KINDS, kind_rows, peak_sentence

order = 55

_HEIGHT = 260
_FEWEST = 3
_STILL_MOMENTS = 200


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study.memory) if material.study.memory is not None else None
    return () if found is None else (found,)


def chart(account: MemoryAccount) -> Chart | None:
    """The largest step; None where fewer than three moments of it are known."""
    if len(account.timeline.operations) < _FEWEST:
        return None
    return Chart(
        name="memory-account",
        title="What a step holds",
        description=peak_sentence(account),
        drawn=_drawn(account, 1),
        still=_drawn(account, -(-len(account.timeline.operations) // _STILL_MOMENTS)),
        table=Table(tuple(it or "kind" for it in KIND_HEADINGS), tuple(kind_rows(account))),
        legend=_legend(account),
        notes=("Operations of the step from left to right; the dashed lines are where its phases begin.",),
        zooms=True,
        unit="operations",
        stretch="phase",
    )


def _drawn(account: MemoryAccount, every: int) -> Specification:
    timeline = account.timeline
    unit, unit_name = (2**30, "GiB") if account.peak.total >= 2**30 else (2**20, "MiB")
    domain = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}, "nice": False, "zero": False}
    x = {"type": "quantitative", "title": "operations of the step", "scale": domain}
    values = list(_values(account, unit, every))
    return specification(
        height=_HEIGHT,
        params=[{"name": "from", "value": 0}, {"name": "to", "value": max(1, timeline.operations[-1])}],
        layer=[
            {
                "data": {"name": "moments", "values": values},
                "mark": {"type": "area", "clip": True, "interpolate": "step-after"},
                "encoding": {
                    "x": {**x, "field": "operation"},
                    "y": {"field": "low", "type": "quantitative", "title": unit_name},
                    "y2": {"field": "high"},
                    "color": {"field": "kind", "scale": colours(_legend(account))},
                    "tooltip": [{"field": "kind"}, {"field": "label", "title": "held"}],
                },
            },
            {
                "data": {"name": "steps", "values": [{"start": at, "name": name} for at, name in timeline.phases]},
                "mark": {"type": "rule", "clip": True, "color": "var(--edge)", "strokeDash": [2, 2]},
                "encoding": {"x": {**x, "field": "start"}},
            },
        ],
    )


def _legend(account: MemoryAccount) -> tuple[tuple[str, str], ...]:
    moments = account.timeline.amounts
    return tuple((name, colour) for field, name, colour in KINDS if any(getattr(it, field) for it in moments))


def _values(account: MemoryAccount, unit: int, every: int) -> Iterator[Specification]:
    shown = {name for name, _ in _legend(account)}
    moments = list(zip(account.timeline.operations, account.timeline.amounts, strict=True))
    for start in range(0, len(moments), every):
        operation, amounts = max(moments[start : start + every], key=lambda it: it[1].total)
        low = 0.0
        for field, name, _ in KINDS:
            if name in shown:
                amount = getattr(amounts, field)
                high = low + amount / unit
                yield {
                    "operation": operation,
                    "kind": name,
                    "low": round(low, 6),
                    "high": round(high, 6),
                    "label": text.size(amount),
                }
                low = high
