"""The waterfall: from the unmodified script, lever by lever, to the verified plan.

Every bar is relative to the time per sample of the unmodified script. A lever that was tried by itself is measured on
top of the levers that were kept before it, so its bar begins where theirs end. Levers that were tried together are each
measured next to all others of the plan; their bars are still drawn one below the other. A lever that was not kept
is drawn next to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotlap.gain import own_comparison
from hotlap.records import Comparison, Estimate, Kept, Outcome, Plan, QualityLost, Study
from hotlap.render import text
from hotlap.render.blocks import Table
from hotlap.render.html.drawing import colours, specification
from hotlap.render.html.parts import Chart, Specification
from hotlap.render.lever_table import verdict_word
from hotlap.render.material import Material
from hotlap.render.quality import quality_word

order = 20

_ROW_PIXELS = 40
_START = "unmodified script"
_END, _END_OPEN = "all together, verified", "all together, not confirmed"
_NOTE = (
    "100 % is the time per sample of the unmodified script. Each lever was measured on top of those kept above "
    "it; thin lines are intervals. Below is the whole plan against the unmodified script, measured again on "
    "fresh launches: the gains of single levers need not multiply to it."
)
_NOTE_TOGETHER = (
    "100 % is the time per sample of the unmodified script. The levers that were kept were tried together: each bar is "
    "what one gives next to the others, within one launch or over fresh ones; thin lines are intervals. Below is the "
    "whole plan against the unmodified script on fresh launches: the gains of single levers need not multiply to it."
)
_KINDS = {
    "unmodified": "var(--as-it-is)",
    "kept": "var(--kept)",
    "not kept": "var(--not-kept)",
    "results differ": "var(--differ)",
    "verified": "var(--verified)",
}


def for_page(material: Material) -> tuple[Chart, ...]:
    """The chart from the material of a page."""
    found = chart(material.study)
    return () if found is None else (found,)


def chart(study: Study) -> Chart | None:
    """The timed levers; None without any."""
    rows = list(_rows(study))
    if len(rows) < 2:
        return None
    legend = tuple((kind, colour) for kind, colour in _KINDS.items() if any(row["kind"] == kind for row in rows))
    axis = {"labelExpr": "split(datum.label, '\\n')", "labelLineHeight": 14}
    y = {"field": "name", "type": "nominal", "sort": [row["name"] for row in rows], "title": None, "axis": axis}
    x = {"type": "quantitative", "scale": {"nice": False, "zero": True}, "title": "time of a sample, %"}
    colour = {"field": "kind", "scale": colours(legend)}
    return Chart(
        name="levers",
        title="Lever by lever",
        description=f"A waterfall from the unmodified script to the plan: {', '.join(map(_in_words, rows[1:]))}.",
        drawn=specification(
            height=_ROW_PIXELS * len(rows),
            data={"values": rows},
            encoding={"y": y},
            layer=[_bars(x, colour), _intervals(x)],
        ),
        table=Table(
            ("lever", ">speedup", ">interval", "verdict"),
            tuple((row["lever"], row["label"], row["interval"], row["word"]) for row in rows[1:]),
        ),
        legend=legend,
        notes=(_note(study),),
    )


def _note(study: Study) -> str:
    note = _NOTE_TOGETHER if any(it.together_with for it in study.outcomes) else _NOTE
    return note if study.verification is not None else note.partition(" Below")[0]


def _bars(x: Specification, colour: Specification) -> Specification:
    return {
        "mark": {"type": "bar", "height": {"band": 0.62}},
        "encoding": {
            "x": {**x, "field": "from"},
            "x2": {"field": "to"},
            "color": colour,
            "tooltip": [
                {"field": "lever"},
                {"field": "label", "title": "speedup"},
                {"field": "interval"},
                {"field": "numbers"},
                {"field": "word", "title": "verdict"},
            ],
        },
    }


def _intervals(x: Specification) -> Specification:
    return {
        "transform": [{"filter": "isValid(datum.fast)"}],
        "mark": {"type": "rule", "strokeWidth": 2},
        "encoding": {"x": {**x, "field": "fast"}, "x2": {"field": "slow"}},
    }


def _rows(study: Study) -> Iterator[Specification]:
    """A row for each timed lever, kept ones in the order in which they joined the plan."""
    yield {"lever": _START, "name": _START, "from": 0.0, "to": 100.0, "kind": "unmodified"}
    level: dict[Plan, float] = {Plan(): 100.0}
    lowest = 100.0
    for outcome, comparison in _timed(study.outcomes):
        above = level.get(comparison.baseline, _nearest(level, comparison.baseline))
        if isinstance(outcome.verdict, Kept) and outcome.together_with:
            above, lowest = lowest, lowest / comparison.speed.speedup.value
        if isinstance(outcome.verdict, Kept):
            level[comparison.candidate] = above / comparison.speed.speedup.value
        yield _row(text.one_line(outcome.lever), above, comparison, _kind(outcome), verdict_word(outcome)[1])
    if study.verification is not None:
        yield {**_last_row(study.verification), "from": 0.0}


def _last_row(verification: Comparison) -> Specification:
    speed = verification.speed
    if not speed.baseline_agrees:
        return _row(_END_OPEN, 100.0, verification, "not kept", "no claim")
    if speed.verdict != "faster":
        return _row(_END_OPEN, 100.0, verification, "not kept", speed.verdict)
    return _row(_END, 100.0, verification, "verified", "faster")


def _row(name: str, above: float, comparison: Comparison, kind: str, word: str) -> Specification:
    of: Estimate = comparison.speed.speedup
    return {
        "lever": name,
        "name": f"{name}\n{text.ratio(of.value)} ({text.interval(of)})",
        "from": above,
        "to": above / of.value,
        "fast": above / of.high,
        "slow": above / of.low,
        "kind": kind,
        "label": text.ratio(of.value),
        "interval": text.interval(of),
        "numbers": quality_word(comparison.quality),
        "word": word,
    }


def _timed(outcomes: Iterable[Outcome]) -> list[tuple[Outcome, Comparison]]:
    found = ((it, own_comparison(it)) for it in outcomes)
    timed = [(it, comparison) for it, comparison in found if comparison is not None]
    return sorted(timed, key=lambda it: (not isinstance(it[0].verdict, Kept), len(it[1].baseline.settings)))


def _nearest(level: dict[Plan, float], plan: Plan) -> float:
    """The end of the largest kept plan that is part of this one: levers that were dropped later have no bar."""
    parts = [it for it in level if set(it.settings) <= set(plan.settings)]
    return level[max(parts, key=lambda it: len(it.settings))]


def _kind(outcome: Outcome) -> str:
    if isinstance(outcome.verdict, Kept):
        return "kept"
    return "results differ" if isinstance(outcome.verdict, QualityLost) else "not kept"


def _in_words(row: Specification) -> str:
    return f"{row['lever']} {row['label']} ({row['interval']}), {row['word']}"
