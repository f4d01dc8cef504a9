"""Where a step's time goes, before and after, stacked by phase."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.records import PhaseAccount, Study
from hotlap.render import text
from hotlap.render.account import SHOWN_PHASES, account_remarks, bottleneck, samples_factor
from hotlap.render.blocks import Table
from hotlap.render.disturbance import account_doubt
from hotlap.render.html.drawing import PADDING_FOR_LABELS, colours, specification
from hotlap.render.html.parts import Chart
from hotlap.render.material import Material
from hotlap.render.step_times import step_times

order = 10

_BAR_PIXELS = 46
_LEGEND = tuple((it.title, f"var({it.variable})") for it in SHOWN_PHASES)


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study)
    return () if found is None else (found,)


def chart(study: Study) -> Chart | None:
    """Both accounts on one scale, for the samples of one step before; None for calls of a model."""
    before = study.account_before
    if before is None or before.wall <= 0 or before.is_of_calls:
        return None
    accounts = _accounts(study, before)
    unit, scale, _ = text.duration_unit(max(it.wall * factor for _, it, factor in accounts))
    values = [
        {"account": name, "phase": shown.title, "time": it.seconds_in(shown.phase) * factor * scale, "order": order}
        for name, it, factor in accounts
        for order, shown in enumerate(SHOWN_PHASES)
    ]
    totals = [
        {"account": name, "time": it.wall * factor * scale, "label": text.duration(it.wall * factor)}
        for name, it, factor in accounts
    ]
    y = {"field": "account", "type": "nominal", "sort": [name for name, *_ in accounts], "title": None}
    longest = max(it.wall * factor * scale for _, it, factor in accounts)
    x = {"type": "quantitative", "title": f"{unit} per step", "scale": {"domainMax": longest, "nice": False}}
    return Chart(
        name="steps",
        title="Time of a step by phase",
        description=_description(accounts),
        drawn=specification(
            height=_BAR_PIXELS * len(accounts),
            padding=PADDING_FOR_LABELS,
            layer=[
                {
                    "data": {"values": values},
                    "mark": {"type": "bar", "stroke": "var(--paper)", "strokeWidth": 1, "tooltip": True},
                    "encoding": {
                        "y": y,
                        "x": {**x, "field": "time", "stack": "zero"},
                        "order": {"field": "order"},
                        "color": {"field": "phase", "scale": colours(_LEGEND)},
                        "tooltip": [
                            {"field": "phase", "title": "phase"},
                            {"field": "time", "title": unit, "format": ".3~r"},
                        ],
                    },
                },
                {
                    "data": {"values": totals},
                    "mark": {"type": "text", "align": "left", "dx": 6, "fontWeight": "bold"},
                    "encoding": {"y": y, "x": {**x, "field": "time"}, "text": {"field": "label"}},
                },
            ],
        ),
        table=_table(accounts),
        legend=_LEGEND,
        notes=(
            *_about_the_plan(study),
            *account_remarks(
                before,
                study.account_after,
                samples_factor(before, study.account_after),
                doubt=account_doubt(study),
                run=study.run_account,
            ),
        ),
    )


def _about_the_plan(study: Study) -> Iterator[str]:
    times = step_times(study)
    if times is not None and times.seconds_with_plan is not None:
        shown = text.duration(times.seconds_with_plan)
        yield f"Each bar is one run. By the ratio of all replicates a step with the plan takes {shown}."


def _accounts(study: Study, before: PhaseAccount) -> list[tuple[str, PhaseAccount, float]]:
    after = study.account_after
    if after is None:
        return [("unmodified", before, 1.0)]
    name = "after" if study.plan.settings else "given up"
    return [("before", before, 1.0), (name, after, samples_factor(before, after))]


def _description(accounts: list[tuple[str, PhaseAccount, float]]) -> str:
    parts = []
    for name, account, factor in accounts:
        phase, share = bottleneck(account)
        parts.append(f"{name} {text.duration(account.wall * factor)}, most of it {phase} ({text.share(share)})")
    return f"Stacked bars of the time of a step: {'; '.join(parts)}."


def _table(accounts: list[tuple[str, PhaseAccount, float]]) -> Table:
    headings = [part for name, *_ in accounts for part in (f">{name}", ">share")]
    rows = []
    for it in SHOWN_PHASES:
        cells = [it.title]
        for _, account, factor in accounts:
            seconds = account.seconds_in(it.phase)
            cells += [text.duration(seconds * factor), text.share(seconds / account.wall) if account.wall else ""]
        rows.append(tuple(cells))
    wholes = [part for _, it, factor in accounts for part in (text.duration(it.wall * factor), text.share(1.0))]
    return Table(("phase", *headings), (*rows, ("whole step", *wholes)))
