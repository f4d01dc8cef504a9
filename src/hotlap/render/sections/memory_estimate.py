"""The estimated peak memory by batch size and by lever."""

from __future__ import annotations

from hotlap.render.blocks import Block, Note, Table
from hotlap.render.material import Material
from hotlap.render.memory import ESTIMATE_HEADINGS, estimate_remarks, estimate_rows
from hotlap.render.sections.api import Section

order = 32
title = "Estimated peaks of memory"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each batch size and lever."""
    estimate = material.study.memory_estimate
    if estimate is None:
        return None
    table = Table(ESTIMATE_HEADINGS, tuple(estimate_rows(estimate)))
    return Section(title, (table, *map(Note, estimate_remarks(estimate))))
