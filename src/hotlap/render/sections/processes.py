"""The script in several numbers of processes."""

from __future__ import annotations

from hotlap.render.blocks import Block, Note, Table
from hotlap.render.material import Material
from hotlap.render.scaling import PROCESS_HEADINGS, process_remarks, process_rows
from hotlap.render.sections.api import Section

order = 37
title = "In more processes"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each number of processes."""
    found = material.study.process_scaling
    if found is None:
        return None
    table = Table(PROCESS_HEADINGS, process_rows(found.rates))
    return Section(title, (table, *map(Note, process_remarks(found))))
