"""Throughput and memory by batch size, the knee, and what another size changes."""

from __future__ import annotations

from rich.console import RenderableType

from hotlap.render.batch_search import HEADINGS, batch_search_table, search_remarks, search_rows
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.html.charts import batch_search as charts
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 34
title = "Batch sizes, the whole script"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each size, with remarks."""
    study = material.study
    if study.batch_search is None:
        return None
    rows = search_rows(study)
    table = (Table(HEADINGS, rows),) if rows else ()
    return Section(title, (*table, *map(Note, search_remarks(study))))


def page(material: Material) -> Section[PageBlock] | None:
    """Charts of throughput and memory with their tables, or only the rows without charts."""
    plain = everywhere(material)
    if plain is None:
        return None
    drawn = tuple(Figure(it.name, heading=True) for it in charts.for_page(material))
    return Section(title, (*drawn, *(it for it in plain.body if not drawn or isinstance(it, Note))))


def terminal(material: Material) -> Section[RenderableType] | None:
    """The same with the throughput drawn."""
    if material.study.batch_search is None:
        return None
    return Section(title, (batch_search_table(material.study),))
