"""A study on one screen, as it ends every command that makes one."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.gain import claimed, comparison_of_plan
from hotlap.objective import is_speed
from hotlap.records import Comparison, Costs, Kept, Setting, Study
from hotlap.render import text
from hotlap.render.brief import NO_BREAK, Brief, Next, Row
from hotlap.render.cost import cost_sentences
from hotlap.render.headline import headline
from hotlap.render.isolation import study_warnings
from hotlap.render.kinds.api import presenter_of
from hotlap.render.lever_table import NOT_PROVED, own_gain
from hotlap.render.presentable import presentable
from hotlap.render.sections.next import commands_of
from hotlap.render.step_times import step_times

_SETTINGS_IN_LINES = 6
"""A longer plan is one paragraph."""


def summary(study: Study, *, plan_path: str = "", costs: Costs | None = None) -> Brief:
    """The answer, what changed, what supports it, and the next commands.

    ``plan_path`` is the path of the plan, or empty.
    """
    study = presentable(study, study.workload.directory)
    answer = headline(study)
    measured = comparison_of_plan(study)
    spent = f"  {text.clock(study.spent_seconds)}" if study.spent_seconds else ""
    compares = measured is not None and bool(study.plan.settings)
    own = tuple(presenter_of(study.kind).summary_rows(study))
    shown = {item for row in own for item in row.items}
    details = tuple(it for it in answer.details if it not in shown)
    rows = [
        *_changed(study, claimed(study)),
        *_step(study, claimed(study)),
        *own,
        *([Row("Trust", details, most=5, least=2)] if compares else []),
        *([Row("Costs", tuple(cost_sentences(study, costs)), most=4)] if _priced(costs) else []),
        *_warnings(study),
    ]
    return Brief(
        top=f"hotlap  {text.command(study.workload)}{spent}",
        tone=answer.tone,
        sentence=answer.sentence,
        details=() if compares else details,
        output=answer.output,
        rows=() if study.status == "script-failed" else tuple(rows),
        commands=tuple(Next(*it) for it in _next(study, plan_path)),
    )


def _priced(costs: Costs | None) -> bool:
    """Whether costs were asked for: break-evens alone are left to the whole report."""
    return costs is not None and (costs.price is not None or costs.run is not None)


def _changed(study: Study, gained: Comparison | None) -> Iterator[Row]:
    """The settings of the plan, each with its own gain where there are several and the plan's is claimed."""
    settings = study.plan.settings
    if not settings:
        return
    label = "Changed" if gained is not None else "Plan"
    if len(settings) > _SETTINGS_IN_LINES:
        yield Row(label, ("; ".join(map(_setting, settings)),), most=7, least=3)
        return
    kept = {it.setting: own_gain(it) for it in study.outcomes if isinstance(it.verdict, Kept)}
    with_gains = len(settings) > 1 and gained is not None and is_speed(study.objective)
    words = {it: "  " + kept.get(it, NOT_PROVED).replace(" ", NO_BREAK) for it in settings} if with_gains else {}
    items = tuple(_setting(it) + words.get(it, "") for it in settings)
    yield Row(label, items, is_list=True, most=8, least=3)


def _setting(it: Setting) -> str:
    values = text.setting_values(it)
    return f"{text.one_line(it.lever)}: {values}" if values else text.one_line(it.lever)


def _step(study: Study, gained: Comparison | None) -> Iterator[Row]:
    """The step, the rate and the memory with the plan and without; nothing for a plan that nothing is claimed of."""
    times = step_times(study)
    if gained is None or times is None:
        return
    if times.seconds_with_plan is None or times.rate_with_plan is None:
        return
    parts = [f"{text.duration(times.seconds_with_plan)}, was {text.duration(times.seconds)}"]
    parts.append(f"{text.number(times.rate_with_plan)} {times.rate_name}, was {text.number(times.rate)}")
    if gained.baseline_peak_bytes and gained.candidate_peak_bytes:
        was, now_used = text.size(gained.baseline_peak_bytes), text.size(gained.candidate_peak_bytes)
        parts.append(f"peak memory {now_used}, {f'was {was}' if was != now_used else 'as before'}")
    yield Row(times.unit.capitalize(), ("; ".join(parts),), most=2)


def _warnings(study: Study) -> Iterator[Row]:
    warnings = study_warnings(study)
    if warnings:
        yield Row("Warnings" if len(warnings) > 1 else "Warning", tuple(warnings), is_list=True, most=4, style="yellow")


def _next(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """The commands of the whole report, and the one that shows it."""
    yield from commands_of(study, plan_path)
    yield text.of_study("hotlap report --full", study.directory), "the whole report"
