"""How what is said of a script's steps reads where they are calls of a model."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from hotlap.records import Study
from hotlap.render.html.parts import Chart
from hotlap.render.kinds.api import presenter_of

_STEPS = (
    (re.compile(r"\bStep by step\b"), "Call by call"),
    (re.compile(r"(?<![\w.])Step(s?)\b"), r"Call\1"),
    (re.compile(r"(?<![\w.])step(s?)\b"), r"call\1"),
)
_ARMS = ("unmodified script", "unmodified script again")
_SCRIPT = ((re.compile(r"\bunmodified script\b"), "unmodified model"), (re.compile(r"\bthe script\b"), "the model"))


def are_calls(study: Study) -> bool:
    """Whether the study's steps are calls of a model."""
    return presenter_of(study.kind).counts_calls


def of_calls(study: Study, said: str) -> str:
    """A sentence about the steps of a script, for this study: unchanged unless they are calls."""
    if not are_calls(study):
        return said
    for pattern, word in (*_STEPS, *(_SCRIPT if study.workload.kind == "inference" else ())):
        said = pattern.sub(word, said)
    return said


def chart_of_calls(study: Study, chart: Chart) -> Chart:
    """The same of the words around a chart and at its axes; its figures may have names of the user's."""
    if not are_calls(study):
        return chart

    def words(said: str) -> str:
        return of_calls(study, said)

    table = replace(chart.table, headings=tuple(map(words, chart.table.headings)))
    return replace(
        chart,
        title=words(chart.title),
        description=words(chart.description),
        drawn=_drawn(study, chart.drawn),
        table=table,
        legend=tuple((words(name), colour) for name, colour in chart.legend),
        notes=tuple(map(words, chart.notes)),
    )


def _drawn(study: Study, part: Any, key: str = "") -> Any:
    """A specification whose titles are changed, and the names of the arms wherever they stand."""
    if isinstance(part, dict):
        return {name: _drawn(study, value, name) for name, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_drawn(study, it, key) for it in part]
    return of_calls(study, part) if isinstance(part, str) and (key == "title" or part in _ARMS) else part
