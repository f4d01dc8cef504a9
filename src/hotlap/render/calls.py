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
    """The same of all words in a chart."""
    if not are_calls(study):
        return chart

    def words(said: str) -> str:
        return of_calls(study, said)

    table = replace(
        chart.table,
        headings=tuple(map(words, chart.table.headings)),
        rows=tuple(tuple(map(words, row)) for row in chart.table.rows),
    )
    return replace(
        chart,
        title=words(chart.title),
        description=words(chart.description),
        drawn=_drawn(study, chart.drawn),
        table=table,
        legend=tuple((words(name), colour) for name, colour in chart.legend),
        notes=tuple(map(words, chart.notes)),
    )


def _drawn(study: Study, part: Any) -> Any:
    """A specification whose texts are changed; a single word may be the name of a field."""
    if isinstance(part, dict):
        return {key: _drawn(study, value) for key, value in part.items()}
    if isinstance(part, (list, tuple)):
        return [_drawn(study, it) for it in part]
    return of_calls(study, part) if isinstance(part, str) and " " in part else part
