"""The ceilings as rates, compared with the script."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hotlap.records import PhaseAccount, Study
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import PADDING_FOR_LABELS, colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material
from hotlap.render.step_times import step_times

order = 30

_ROW_PIXELS = 30
_FAR_ABOVE = 8.0
"""A ceiling above this multiple of the script's rate would make all other bars invisible; it is named instead."""

_NEW_LOADER = "loader with the plan"

_LEGEND = (("measured", "var(--kept)"), ("ceiling", "var(--not-kept)"))


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study)
    return () if found is None else (found,)


def chart(study: Study) -> Chart | None:
    """Samples per second: of the script, of the plan, and the most that each part would allow."""
    known = [it for it in study.ceilings if it.seconds_per_sample]
    if not known or study.account_before is None or study.account_before.wall <= 0:
        return None
    script = list(_script(study, study.account_before))
    rates = {it.name.replace("-", " "): 1 / it.seconds_per_sample for it in known if it.seconds_per_sample}
    nearest = _FAR_ABOVE * script[0].rate
    rates |= _with_plan(study)
    rows = [*script, *(_Rate(name, rate, "ceiling") for name, rate in rates.items() if rate <= nearest)]
    beyond = [f"{name} ({text.number(rate)})" for name, rate in rates.items() if rate > nearest]
    y = {"field": "name", "type": "nominal", "sort": [it.name for it in rows], "title": None}
    x = {"field": "rate", "type": "quantitative", "scale": {"nice": False}, "title": "samples per second"}
    colour = {"field": "kind", "scale": colours(_LEGEND)}
    return Chart(
        name="ceilings",
        title="Samples per second, and the most that is possible",
        description="Bars of samples per second: " + ", ".join(f"{it.name} {it.label}" for it in rows) + ".",
        drawn=specification(
            height=_ROW_PIXELS * len(rows),
            padding=PADDING_FOR_LABELS,
            data={"values": [{**it._asdict(), "label": it.label} for it in rows]},
            encoding={"y": y},
            layer=[
                {
                    "mark": {"type": "bar", "height": {"band": 0.62}},
                    "encoding": {"x": x, "color": colour, "tooltip": [{"field": "name"}, {"field": "label"}]},
                },
                {
                    "mark": {"type": "text", "align": "left", "dx": 6},
                    "encoding": {"x": x, "text": {"field": "label"}},
                },
            ],
        ),
        table=Table(("", ">samples per second"), tuple((it.name, it.label) for it in rows)),
        legend=_LEGEND,
        notes=tuple(_notes(study, beyond)),
    )


class _Rate(NamedTuple):
    """A bar: samples per second."""

    name: str
    rate: float
    kind: str

    @property
    def label(self) -> str:
        return text.number(self.rate)


def _script(study: Study, before: PhaseAccount) -> Iterator[_Rate]:
    yield _Rate("unmodified script", before.samples_per_step / before.wall, "measured")
    after, times = study.account_after, step_times(study)
    if after is None or after.wall <= 0 or not study.plan.settings:
        return
    verified = times.rate_with_plan if times is not None else None
    yield _Rate("with the plan", verified or after.samples_per_step / after.wall, "measured")


def _with_plan(study: Study) -> dict[str, float]:
    """The rate of the loader alone with the plan's setting, if that is one of those that were timed."""
    planned = [(it.lever, dict(it.values)) for it in study.plan.settings]
    for it in study.loader_rates:
        if not it.error and it.seconds_per_sample > 0 and (it.setting.lever, dict(it.setting.values)) in planned:
            return {_NEW_LOADER: 1 / it.seconds_per_sample}
    return {}


def _notes(study: Study, beyond: list[str]) -> Iterator[str]:
    if study.account_after is not None and study.plan.settings:
        yield "The ceilings are those of the unmodified script; a plan that changes the loader or the model moves them."
    if _with_plan(study):
        yield "The loader with the plan's setting was timed alone, without the other levers of the plan."
    if beyond:
        yield f"Too far above to be drawn: {text.listed(beyond)} samples per second."
