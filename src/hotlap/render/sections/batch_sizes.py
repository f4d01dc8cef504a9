"""Throughput and memory of the model alone at other batch sizes."""

from __future__ import annotations

from hotlap.render.batch_sizes import HEADINGS, batch_remark, batch_rows
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.disturbance import batch_doubt
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 35
title = "Batch sizes"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each size, with remarks."""
    rates = material.study.batch_rates
    if not rates:
        return None
    return Section(title, (Table(HEADINGS, batch_rows(rates)), Note(batch_remark(rates, batch_doubt(material.study)))))


def page(material: Material) -> Section[PageBlock]:
    """A chart with its table."""
    return Section(title, (Figure("batch-sizes"),))
