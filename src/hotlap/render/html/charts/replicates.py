"""The rounds that the headline was computed from: a dot for each, with two copies of the unmodified script."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean

from hotlap.gain import comparison_of_plan
from hotlap.records import SpeedComparison, Timings
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 5

_ROW_PIXELS = 30
_FEWEST_PIXELS = 110
_PLAN, _AGAIN = "with the plan", "unmodified script again"
_LEGEND = ((_PLAN, "var(--kept)"), (_AGAIN, "var(--as-it-is)"))


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart; none without a verification whose rounds were stored."""
    comparison, timings = comparison_of_plan(material.study), material.study.timings
    if comparison is None or timings is None or not _is_whole(timings):
        return ()
    return (_chart(comparison.speed, timings),)


def _is_whole(timings: Timings) -> bool:
    """Whether all arms have the same rounds, at least one, as every verification has."""
    arms = (timings.baseline, timings.repeat, timings.plan)
    shapes = {tuple(len(row) for row in arm) for arm in arms}
    times = [it for arm in arms for row in arm for it in row]
    return len(shapes) == 1 and all(shapes.pop()) and bool(times) and min(times) > 0


def _chart(speed: SpeedComparison, timings: Timings) -> Chart:
    dots = list(_dots(timings))
    names = [_name(it) for it in range(len(timings.plan))]
    y = {"field": "replicate", "type": "nominal", "sort": names, "title": None}
    scale, axis = {"type": "log", "nice": False, "padding": 6}, {"format": ".3~r"}
    x = {"type": "quantitative", "title": "speedup (logarithmic)", "scale": scale, "axis": axis}
    means = [{**it, "ratio": _mean(it["ratios"])} for it in _of_replicates(timings)]
    rows = [(it["replicate"], *(text.ratio(_mean(it[arm])) for arm in ("ratios", "again"))) for it in means]
    return Chart(
        name="replicates",
        title="Every round of every replicate",
        description=(
            f"Dots for {text.count(len(dots) // 2, 'round')} in {text.count(len(names), 'replicate')}. Means of the "
            f"replicates with the plan: {text.listed([row[1] for row in rows])}; of two copies of the unmodified "
            f"script: {text.listed([row[2] for row in rows])}."
        ),
        drawn=specification(
            height=max(_FEWEST_PIXELS, _ROW_PIXELS * len(names)),
            layer=[*_bands(speed, x), _dots_layer(dots, x, y), _means_layer(means, x, y)],
        ),
        table=Table(("replicate", f">{_PLAN}", f">{_AGAIN}"), tuple(rows)),
        legend=_LEGEND,
        notes=tuple(_notes(speed)),
    )


def _dots(timings: Timings) -> Iterator[Specification]:
    for number, rows in enumerate(zip(timings.baseline, timings.repeat, timings.plan, strict=True)):
        for round_number, (own, again, plan) in enumerate(zip(*rows, strict=True), start=1):
            common = {"replicate": _name(number), "round": round_number}
            yield {**common, "arm": _AGAIN, "ratio": own / again, "label": text.ratio(own / again)}
            with_plan = _between(own, again) / plan
            yield {**common, "arm": _PLAN, "ratio": with_plan, "label": text.ratio(with_plan)}


def _of_replicates(timings: Timings) -> Iterator[Specification]:
    for number, (own, again, plan) in enumerate(zip(timings.baseline, timings.repeat, timings.plan, strict=True)):
        both = tuple(map(_between, own, again))
        yield {"replicate": _name(number), "ratios": _ratios(both, plan), "again": _ratios(own, again)}


def _between(own: float, again: float) -> float:
    """The geometric mean of both copies of the unmodified script, with which the plan is compared."""
    return math.sqrt(own * again)


def _ratios(own: tuple[float, ...], other: tuple[float, ...]) -> list[float]:
    return [a / b for a, b in zip(own, other, strict=True)]


def _mean(ratios: list[float]) -> float:
    """The geometric mean, which is what a replicate contributes to the interval."""
    return math.exp(fmean(map(math.log, ratios)))


def _name(replicate: int) -> str:
    return f"replicate {replicate + 1}"


def _bands(speed: SpeedComparison, x: Specification) -> Iterator[Specification]:
    """The intervals, from top to bottom, and a line where nothing changes."""
    intervals = [
        (speed.speedup, "var(--kept)"),
        *([(speed.baseline_speedup, "var(--as-it-is)")] if speed.baseline_speedup else []),
    ]
    for of, colour in intervals:
        yield {
            "data": {"values": [{"low": of.low, "high": of.high}]},
            "mark": {"type": "rect", "color": colour, "opacity": 0.22},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}},
        }
    rule = {"type": "rule", "strokeDash": [4, 3], "color": "var(--edge)"}
    yield {"data": {"values": [{"at": 1}]}, "mark": rule, "encoding": {"x": {**x, "field": "at"}}}


def _dots_layer(dots: list[Specification], x: Specification, y: Specification) -> Specification:
    return {
        "data": {"values": dots},
        "mark": {"type": "circle", "size": 26, "opacity": 0.75},
        "encoding": {
            "x": {**x, "field": "ratio"},
            "y": y,
            "color": {"field": "arm", "scale": colours(_LEGEND)},
            "tooltip": [
                {"field": "arm"},
                {"field": "replicate"},
                {"field": "round"},
                {"field": "label", "title": "ratio"},
            ],
        },
    }


def _means_layer(means: list[Specification], x: Specification, y: Specification) -> Specification:
    values = [{"replicate": it["replicate"], "ratio": it["ratio"]} for it in means]
    return {
        "data": {"values": values},
        "mark": {"type": "tick", "thickness": 3, "size": 20, "color": "var(--ink)"},
        "encoding": {"x": {**x, "field": "ratio"}, "y": y},
    }


def _notes(speed: SpeedComparison) -> Iterator[str]:
    yield (
        "A replicate is a fresh launch of every arm, whose blocks of steps take turns; a dot is one round of that. "
        "Those of the plan compare it with the mean of both copies of the unmodified script. Dark ticks are the means "
        f"of replicates, and the blue band is the {text.confidence(speed.confidence)} over them: "
        f"{text.interval(speed.speedup)}."
    )
    own = speed.baseline_speedup
    if own is not None:
        agrees = (
            "It contains 1, as it must for a claim"
            if speed.baseline_agrees
            else "It does not contain 1, so no claim is made"
        )
        yield (
            "Grey dots compare two copies of the unmodified script in the same rounds (A/A), and the grey band is the "
            f"interval of that: {own.low:.3f} to {own.high:.3f}. {agrees}."
        )
