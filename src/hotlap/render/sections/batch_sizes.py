"""What the model alone makes of other batch sizes."""

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
    """A row for each size, and what the figures are not."""
    rates = material.study.batch_rates
    if not rates:
        return None
    return Section(title, (Table(HEADINGS, batch_rows(rates)), Note(batch_remark(rates, batch_doubt(material.study)))))


def page(material: Material) -> Section[PageBlock]:
    """A line through the sizes, which has the same with it."""
    return Section(title, (Figure("batch-sizes"),))
