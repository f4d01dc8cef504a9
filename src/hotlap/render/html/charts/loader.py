"""The loader alone, with each of the settings that were timed."""

from __future__ import annotations

from collections.abc import Iterable

from hotlap.records import LoaderRate, Study, Value
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import PADDING_FOR_LABELS, colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 50

_ROW_PIXELS = 34
_AXIS = {"labelExpr": "split(datum.label, ', ')", "labelLineHeight": 13, "labelLimit": 130}
_OWN = "unmodified"
_OTHER = "tried"
_LEGEND = ((_OWN, "var(--as-it-is)"), (_OTHER, "var(--kept)"))


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study)
    return () if found is None else (found,)


def chart(study: Study) -> Chart | None:
    """Samples per second by setting, and what the model could take; None where the loader was not timed."""
    rates = [it for it in study.loader_rates if not it.error and it.seconds_per_sample > 0]
    if not rates:
        return None
    common = _common(study.loader_rates)
    alone = next((it.seconds_per_sample for it in study.ceilings if it.name == "loader-alone"), None)
    own = next((it.setting for it in rates if it.seconds_per_sample == alone), None)
    rows = [
        {
            "setting": _label(it, common),
            "rate": 1 / it.seconds_per_sample,
            "label": text.number(1 / it.seconds_per_sample),
            "kind": _OWN if it.setting == own else _OTHER,
        }
        for it in rates
    ]
    model = next((it.seconds_per_sample for it in study.ceilings if it.name == "model-alone"), None)
    y = {"field": "setting", "type": "nominal", "sort": [row["setting"] for row in rows], "title": None, "axis": _AXIS}
    x = {"type": "quantitative", "title": "samples per second", "scale": {"nice": False}}
    colour = {"field": "kind", "scale": colours(_LEGEND)}
    layers: list[Specification] = [
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "height": {"band": 0.62}},
            "encoding": {"y": y, "x": {**x, "field": "rate"}, "color": colour},
        },
        {
            "data": {"values": rows},
            "mark": {"type": "text", "align": "left", "dx": 6},
            "encoding": {"y": y, "x": {**x, "field": "rate"}, "text": {"field": "label"}},
        },
    ]
    if model:
        layers.append(
            {
                "data": {"values": [{"rate": 1 / model}]},
                "mark": {"type": "rule", "strokeDash": [4, 3], "strokeWidth": 1.5},
                "encoding": {"x": {**x, "field": "rate"}},
            }
        )
    return Chart(
        name="loader",
        title="The loader alone, by its settings",
        description="Bars of samples per second: " + ", ".join(f"{it['setting']} {it['label']}" for it in rows) + ".",
        drawn=specification(height=_ROW_PIXELS * len(rows), padding=PADDING_FOR_LABELS, layer=layers),
        table=_table(study.loader_rates, common),
        legend=_LEGEND,
        notes=tuple(_notes(common, model)),
    )


def _notes(common: dict[str, Value], model: float | None) -> list[str]:
    shared = text.one_line(_in_words(common.items()))
    notes = [f"Where there are workers: {shared}."] if shared else []
    if model:
        notes.append(f"The dashed line is what the model alone can take: {text.number(1 / model)} samples per second.")
    return notes


def _common(rates: tuple[LoaderRate, ...]) -> dict[str, Value]:
    """The values on which all settings agree, which are not repeated for each."""
    said: dict[str, set[Value]] = {}
    for rate in rates:
        for name, value in rate.setting.values:
            said.setdefault(name, set()).add(value)
    return {name: next(iter(values)) for name, values in said.items() if len(values) == 1 and name != "num_workers"}


def _label(rate: LoaderRate, common: dict[str, Value]) -> str:
    """``num_workers 4, pin_memory``: what this setting does not share with the others, workers first."""
    own = sorted((it for it in rate.setting.values if it[0] not in common), key=lambda it: it[0] != "num_workers")
    return text.one_line(_in_words(own), limit=60) or "unmodified"


def _in_words(values: Iterable[tuple[str, Value]]) -> str:
    return ", ".join(name if it is True else f"{name} {it}" for name, it in values if it is not False)


def _table(rates: tuple[LoaderRate, ...], common: dict[str, Value]) -> Table:
    rows = []
    for it in rates:
        if it.error:
            rows.append((_label(it, common), text.one_line(it.error), "", ""))
        else:
            rate = text.number(1 / it.seconds_per_sample) if it.seconds_per_sample > 0 else ""
            rows.append((_label(it, common), rate, text.duration(it.first_batch_seconds), str(it.batches)))
    return Table(("setting", ">samples per second", ">first batch after", ">batches timed"), tuple(rows))
