"""Single steps of the last replicate, before and after: one by one, and how often each length occurs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hotlap.records import Timings
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.material import Material

order = 6

SERIES, HISTOGRAM = "step-series", "step-histogram"

_HEIGHT = 190
_FEWEST = 5
_BINS = 48
_FAR = 4.0
"""Steps longer than this multiple of the slower arm's 95th percentile would flatten all others."""

_LOGARITHMIC = {"type": "log", "nice": False}
_SHARES = (0.05, 0.5, 0.95)
_LEGEND = (("before", "var(--as-it-is)"), ("after", "var(--kept)"))


class _Arm(NamedTuple):
    """Seconds for the samples of one step before, in the order of the steps."""

    name: str
    seconds: tuple[float, ...]

    def at(self, share: float) -> float:
        """The percentile, as the nearest rank."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, math.floor(share * len(self.seconds)))]


def for_page(material: Material) -> tuple[Chart, ...]:
    """Both charts; none where fewer than five steps of each arm are known."""
    timings = material.study.timings
    arms = _arms(timings) if timings is not None else ()
    if not arms or any(len(it.seconds) < _FEWEST or min(it.seconds) <= 0 for it in arms):
        return ()
    longest = _FAR * max(it.at(0.95) for it in arms)
    unit, scale, _ = text.duration_unit(max(it.at(0.95) for it in arms))
    return _series(arms, longest, unit, scale), _histogram(arms, longest, unit, scale)


def _arms(timings: Timings) -> tuple[_Arm, ...]:
    per_sample = timings.baseline_samples / timings.plan_samples if timings.plan_samples > 0 else 1.0
    after = tuple(it * per_sample for it in timings.plan_steps)
    return _Arm("before", timings.baseline_steps), _Arm("after", after)


def _series(arms: tuple[_Arm, ...], longest: float, unit: str, scale: float) -> Chart:
    values = [
        {"step": number, "time": min(it, longest) * scale, "arm": arm.name, "label": text.duration(it)}
        for arm in arms
        for number, it in enumerate(arm.seconds, start=1)
    ]
    colour = {"field": "arm", "scale": colours(_LEGEND)}
    x = {"field": "step", "type": "quantitative", "title": "timed step", "scale": {"nice": False, "zero": False}}
    y = {"field": "time", "type": "quantitative", "title": f"{unit} per step", "axis": {"grid": True}}
    tooltip = [{"field": "arm"}, {"field": "step"}, {"field": "label", "title": "time"}]
    return Chart(
        name=SERIES,
        title="Step by step",
        description=f"Two lines of the time of each step. {_in_words(arms)}",
        drawn=specification(
            height=_HEIGHT,
            data={"values": values},
            encoding={"x": x, "y": y, "color": colour},
            layer=[
                {"mark": {"type": "line", "strokeWidth": 1, "opacity": 0.5}},
                {"mark": {"type": "circle", "size": 14, "opacity": 1}, "encoding": {"tooltip": tooltip}},
            ],
        ),
        table=_table(arms),
        legend=_LEGEND,
        notes=tuple(_notes(arms, longest)),
    )


def _histogram(arms: tuple[_Arm, ...], longest: float, unit: str, scale: float) -> Chart:
    bars = list(_bars(arms, longest, scale))
    axis = {"format": ".3~r", "grid": False}
    x = {"type": "quantitative", "title": f"{unit} per step (logarithmic)", "scale": _LOGARITHMIC, "axis": axis}
    y = {"field": "share", "type": "quantitative", "title": "steps, %", "axis": {"grid": True}}
    medians = [{"arm": it.name, "time": it.at(0.5) * scale} for it in arms]
    colour = {"field": "arm", "scale": colours(_LEGEND)}
    tooltip = [{"field": "arm"}, {"field": "label", "title": "time"}, {"field": "steps"}]
    return Chart(
        name=HISTOGRAM,
        title="How long steps take",
        description=f"A histogram of the time of a step. {_in_words(arms)}",
        drawn=specification(
            height=_HEIGHT,
            layer=[
                {
                    "data": {"values": bars},
                    "mark": {"type": "bar", "opacity": 0.7, "binSpacing": 0},
                    "encoding": {
                        "x": {**x, "field": "from", "bin": "binned"},
                        "x2": {"field": "to"},
                        "y": y,
                        "color": colour,
                        "tooltip": tooltip,
                    },
                },
                {
                    "data": {"values": medians},
                    "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [5, 3]},
                    "encoding": {"x": {**x, "field": "time"}, "color": colour},
                },
            ],
        ),
        table=_table(arms),
        legend=_LEGEND,
        notes=("The dashed lines are the medians.",),
    )


def _bars(arms: tuple[_Arm, ...], longest: float, scale: float) -> Iterator[Specification]:
    """The steps of each arm in bins that all span the same ratio."""
    shown = [min(it, longest) for arm in arms for it in arm.seconds]
    least, width = min(shown), math.log(max(shown) / min(shown)) / _BINS or 1e-3
    for arm in arms:
        counts = [0] * _BINS
        for it in arm.seconds:
            counts[min(_BINS - 1, int(math.log(min(it, longest) / least) / width))] += 1
        for number, count in enumerate(counts):
            if count:
                low, high = (least * math.exp(width * it) for it in (number, number + 1))
                yield {
                    "arm": arm.name,
                    "from": low * scale,
                    "to": high * scale,
                    "share": 100 * count / len(arm.seconds),
                    "steps": count,
                    "label": f"{text.duration(low)} to {text.duration(high)}",
                }


def _table(arms: Sequence[_Arm]) -> Table:
    rows = tuple(
        (
            it.name,
            *(text.duration(it.at(share)) for share in _SHARES),
            text.duration(max(it.seconds)),
            f"{len(it.seconds):,}",
        )
        for it in arms
    )
    return Table(("", ">5 % are below", ">median", ">95 % are below", ">longest", ">steps"), rows)


def _in_words(arms: Sequence[_Arm]) -> str:
    return (
        "; ".join(
            f"{it.name}: median {text.duration(it.at(0.5))}, 95 % below {text.duration(it.at(0.95))}" for it in arms
        ).capitalize()
        + "."
    )


def _notes(arms: Sequence[_Arm], longest: float) -> Iterator[str]:
    yield (
        "The timed steps of the last replicate, in which both took turns, on the clock of the script's own process. "
        "Steps between two turns are left out."
    )
    beyond = sum(it > longest for arm in arms for it in arm.seconds)
    if beyond:
        yield f"At the upper edge: {text.count(beyond, 'step')} longer than {text.duration(longest)}."
