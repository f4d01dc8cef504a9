"""Throughput and peak memory of the whole script by its batch size, with the knee and the memory that may be used."""

from __future__ import annotations

from typing import Any

from hotlap.records import BatchRate, BatchSearch, Estimate, Study
from hotlap.render import text
from hotlap.render.batch_search import HEADINGS, knee_sentence, search_rows
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import LIMIT_IN_SIGHT, colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 58

THROUGHPUT = "batch-search"
MEMORY = "batch-search-memory"

_HEIGHT = 200
_FEWEST = 2
_KNEE, _OWN, _OTHER = "the knee", "unmodified", "another size"
_LEGEND = ((_KNEE, "var(--kept)"), (_OWN, "var(--as-it-is)"), (_OTHER, "var(--edge)"))
_LIMIT = "the most that leaves the headroom"


def for_page(material: Material) -> tuple[Chart, ...]:
    """Throughput, and memory where it was measured; none where fewer than two sizes were timed."""
    search = material.study.batch_search
    timed = [it for it in search.rates if not it.error and it.seconds_per_sample > 0] if search is not None else []
    own = next((it for it in timed if it.speedup is None), None)
    if search is None or own is None or len(timed) < _FEWEST:
        return ()
    charts = (
        _throughput(material.study, search, timed, 1 / own.seconds_per_sample),
        _memory(search, [it for it in timed if it.peak_bytes]),
    )
    return tuple(it for it in charts if it is not None)


def _throughput(study: Study, search: BatchSearch, timed: list[BatchRate], level: float) -> Chart:
    """``level`` is the unmodified script's samples per second, to which the ratios and their intervals refer."""
    values = [
        {
            "size": rate.batch_size,
            "rate": level * found.value,
            "low": level * found.low,
            "high": level * found.high,
            "kind": _kind(rate, search),
        }
        for rate in timed
        for found in (rate.speedup or Estimate(value=1.0, low=1.0, high=1.0),)
    ]
    y = {"type": "quantitative", "title": "samples per second", "scale": {"zero": True}, "axis": {"grid": True}}
    listed = ", ".join(f"{it.batch_size}: {text.number(level * it.throughput)}" for it in timed)
    return Chart(
        name=THROUGHPUT,
        title="Samples per second, by batch size",
        description=f"A line of samples per second by batch size: {listed}. {knee_sentence(search)}",
        drawn=_drawing(values, timed, y, "rate", _interval(timed, y)),
        table=Table(tuple(it or "remark" for it in HEADINGS), search_rows(study)),
        legend=_shown(search, timed),
        notes=(knee_sentence(search),),
    )


def _memory(search: BatchSearch, timed: list[BatchRate]) -> Chart | None:
    if len(timed) < _FEWEST:
        return None
    values = [{"size": it.batch_size, "bytes": it.peak_bytes / 2**30, "kind": _kind(it, search)} for it in timed]
    limit = (1 - search.headroom) * search.memory_bytes
    y = {"type": "quantitative", "title": "peak memory (GiB)", "scale": {"zero": True}, "axis": {"grid": True}}
    rows = tuple((str(it.batch_size), text.size(it.peak_bytes), _share(it.peak_bytes, limit)) for it in timed)
    layers: list[Specification] = []
    legend = _shown(search, timed)
    said = f"{text.size(round(limit))} may be used, which leaves {100 * search.headroom:g} % free."
    if 0 < limit < LIMIT_IN_SIGHT * max(it.peak_bytes for it in timed):
        said = f"The line is at {text.size(round(limit))}, which leaves {100 * search.headroom:g} % free."
        line = {"type": "rule", "strokeWidth": 1.5, "strokeDash": [4, 4], "color": "var(--differ)"}
        layers.append({"mark": line, "encoding": {"y": {**y, "datum": limit / 2**30}}})
        legend = (*legend, (_LIMIT, "var(--differ)"))
    listed = ", ".join(f"{size}: {amount}" for size, amount, _ in rows)
    return Chart(
        name=MEMORY,
        title="Peak memory, by batch size",
        description=f"A line of peak memory by batch size: {listed}.",
        drawn=_drawing(values, timed, y, "bytes", layers),
        table=Table((">batch size", ">peak memory", ">share of the limit"), rows),
        legend=legend,
        notes=(said,) if limit > 0 else (),
    )


def _drawing(
    values: list[dict[str, Any]], timed: list[BatchRate], y: Specification, field: str, more: list[Specification]
) -> Specification:
    at = _axis(timed)
    line = {"type": "line", "strokeWidth": 1.5, "color": "var(--edge)"}
    point = {"type": "point", "filled": True, "size": 70, "opacity": 1}
    colour = {"field": "kind", "scale": colours(_LEGEND)}
    return specification(
        height=_HEIGHT,
        data={"values": values},
        layer=[
            {"mark": line, "encoding": {"x": at, "y": {**y, "field": field}}},
            *more,
            {"mark": point, "encoding": {"x": at, "y": {**y, "field": field}, "color": colour}},
        ],
    )


def _interval(timed: list[BatchRate], y: Specification) -> list[Specification]:
    encoding = {"x": _axis(timed), "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return [{"mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": encoding}]


def _axis(timed: list[BatchRate]) -> Specification:
    sizes = [it.batch_size for it in timed]
    scale = {"type": "log", "base": 2, "nice": False}
    axis = {"values": sizes, "format": "~r", "grid": False}
    return {"field": "size", "type": "quantitative", "title": "batch size", "scale": scale, "axis": axis}


def _kind(rate: BatchRate, search: BatchSearch) -> str:
    if rate.batch_size == search.knee:
        return _KNEE
    return _OWN if rate.batch_size == search.own else _OTHER


def _shown(search: BatchSearch, timed: list[BatchRate]) -> tuple[tuple[str, str], ...]:
    kinds = {_kind(it, search) for it in timed}
    return tuple(it for it in _LEGEND if it[0] in kinds)


def _share(peak_bytes: int, limit: float) -> str:
    return f"{100 * peak_bytes / limit:.0f} %" if limit > 0 else ""
