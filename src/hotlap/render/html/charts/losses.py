"""The loss curves of both parity runs, and their difference with its limit."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import LossCurves, Quality, Study
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material

order = 40

_HEIGHT = 220
_ROWS = 12
_LEGEND = (("baseline", "var(--as-it-is)"), ("with the plan", "var(--kept)"))
_ARMS = tuple(name for name, _ in _LEGEND)
_MARKS = {"baseline": [1, 0], "with the plan": [5, 4]}


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    return charts(material.study)


def charts(study: Study) -> tuple[Chart, ...]:
    """The curves and, with a limit, their difference within its band."""
    curves = study.losses
    if curves is None or len(curves.steps) < 2:
        return ()
    return (_curves(curves), *_difference(curves, study.verification.quality if study.verification else None))


def _curves(curves: LossCurves) -> Chart:
    columns = (curves.baseline, curves.plan), (curves.baseline_average, curves.plan_average)
    values = [
        {"step": step, "run": arm, "loss": loss, "average": average}
        for arm, losses, averages in zip(_ARMS, *columns, strict=True)
        for step, loss, average in zip(curves.steps, losses, averages, strict=True)
    ]
    colour = {"field": "run", "scale": colours(_LEGEND)}
    x = {"field": "step", "type": "quantitative", "title": "step", "scale": {"nice": False, "zero": False}}
    loss_axis = {"type": "quantitative", "title": "loss", "scale": {"zero": False}}
    dash = {"field": "run", "scale": {"domain": list(_MARKS), "range": list(_MARKS.values())}}
    last = len(curves.steps) - 1
    return Chart(
        name="losses",
        title="Loss of the unmodified script and with the plan",
        description=(
            f"Two loss curves over {curves.compared_steps} steps. Smoothed, the baseline goes from "
            f"{curves.baseline_average[0]:.4g} to {curves.baseline_average[last]:.4g}, and the plan from "
            f"{curves.plan_average[0]:.4g} to {curves.plan_average[last]:.4g}."
        ),
        drawn=specification(
            height=_HEIGHT,
            data={"values": values},
            encoding={"x": x, "color": colour},
            layer=[
                {
                    "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.3},
                    "encoding": {"y": {**loss_axis, "field": "loss"}},
                },
                {
                    "mark": {"type": "line", "strokeWidth": 2.5},
                    "encoding": {"y": {**loss_axis, "field": "average"}, "strokeDash": dash},
                },
            ],
        ),
        table=_table(curves),
        legend=_LEGEND,
        notes=(
            "Thick: smoothed, as compared (an exponential moving average with factor 0.1). Thin: each step's loss.",
            *_remarks(curves),
        ),
    )


def _difference(curves: LossCurves, quality: Quality | None) -> tuple[Chart, ...]:
    """The difference of the smoothed losses in percent; nothing if both are bitwise identical, or without a limit."""
    limit = quality.trajectory_limit if quality is not None else None
    if limit is None or not curves.allowed or min(curves.allowed) <= 0:
        return ()
    columns = (curves.steps, curves.baseline_average, curves.plan_average, curves.allowed)
    percent = 100 * limit
    values = [
        {"step": step, "difference": (other - one) / allowed * percent}
        for step, one, other, allowed in zip(*columns, strict=True)
    ]
    largest = max(abs(it["difference"]) for it in values)
    reach = 1.15 * max(percent, largest)
    x = {"field": "step", "type": "quantitative", "title": "step", "scale": {"nice": False, "zero": False}}
    y = {"type": "quantitative", "scale": {"domain": [-reach, reach], "nice": False}, "title": "difference, %"}
    chart = Chart(
        name="difference",
        title="How far apart the smoothed losses are",
        description=(
            f"A line of the difference of the smoothed losses, which stays within {largest:.2g} %; the band of "
            f"{percent:.2g} % up and down is what run-to-run noise and rounding of this script allow."
        ),
        drawn=specification(
            height=150,
            layer=[
                {
                    "data": {"values": [{"low": -percent, "high": percent}]},
                    "mark": {"type": "rect", "color": "var(--band)"},
                    "encoding": {"y": {**y, "field": "low"}, "y2": {"field": "high"}},
                },
                {
                    "data": {"values": values},
                    "mark": {"type": "line", "strokeWidth": 2, "color": "var(--kept)"},
                    "encoding": {"x": x, "y": {**y, "field": "difference"}},
                },
            ],
        ),
        table=Table(("", ">share of the loss"), (("largest shown", f"{largest:.2g} %"), ("limit", f"{percent:.2g} %"))),
        notes=(
            f"The band is the limit of {text.share(limit)}: the larger of 0.1 % and three times the "
            "run-to-run noise of the script, or the effect of a change in the last digit of its initial weights.",
        ),
    )
    return (chart,)


def _table(curves: LossCurves) -> Table:
    """Some rows, evenly spaced, including the first and the last."""
    last = len(curves.steps) - 1
    chosen = sorted({round(row * last / (_ROWS - 1)) for row in range(_ROWS)})
    rows = tuple(
        (
            str(curves.steps[it]),
            *(f"{column[it]:.5g}" for column in (curves.baseline_average, curves.plan_average)),
        )
        for it in chosen
    )
    return Table((">step", ">baseline, smoothed", ">with the plan, smoothed"), rows)


def _remarks(curves: LossCurves) -> Iterator[str]:
    if curves.baseline == curves.plan:
        yield "Both are identical to the last bit, so the lines coincide."
    if curves.every > 1:
        yield f"Of {curves.compared_steps} steps that were compared one in {curves.every} is drawn."
