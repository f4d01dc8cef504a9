"""The predicted scaling curve."""

from __future__ import annotations

from hotlap.render import text
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.html.charts import scaling as charts
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.scaling import (
    CURVE_HEADINGS,
    change_sentence,
    curve_rows,
    price_and_failure_sentences,
    trust_sentences,
)
from hotlap.render.sections.api import Section

_LONGEST_NOTE = 1000

order = 36
title = "On more devices"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each number of ranks and strategy, with the error of earlier predictions and what is assumed."""
    found = material.study.scale
    if found is None or not found.points:
        return None
    notes = (
        change_sentence(found), *price_and_failure_sentences(found), *trust_sentences(found), *found.assumptions
    )  # fmt: skip
    notes_shown = (Note(text.one_line(it, limit=_LONGEST_NOTE)) for it in notes if it)
    return Section(title, (Table(CURVE_HEADINGS, curve_rows(found)), *notes_shown))


def page(material: Material) -> Section[PageBlock] | None:
    """The chart, which has the rows as its table, or only the rows where a single number of ranks was predicted."""
    plain = everywhere(material)
    if plain is None:
        return None
    drawn = tuple(Figure(it.name, heading=True) for it in charts.for_page(material))
    return Section(title, (*drawn, *(it for it in plain.body if not drawn or isinstance(it, Note))))
