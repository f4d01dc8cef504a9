"""The memory account: at the peak, over a step, and by module."""

from __future__ import annotations

from hotlap.render.blocks import Block, Note, Table
from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.memory import (
    KIND_HEADINGS,
    MODULE_HEADINGS,
    allocator_sentences,
    kind_rows,
    module_rows,
    remarks,
)
from hotlap.render.sections.api import Section

order = 33
title = "Where memory goes"


def everywhere(material: Material) -> Section[Block] | None:
    """The peak by kind and by module."""
    account = material.study.memory
    if account is None:
        return None
    blocks: list[Block] = [Table(KIND_HEADINGS, tuple(kind_rows(account)))]
    rows = module_rows(account)
    if rows:
        blocks.append(Table(MODULE_HEADINGS, rows))
    return Section(title, (*blocks, *map(Note, (*allocator_sentences(account), *remarks(account)))))


def page(material: Material) -> Section[PageBlock] | None:
    """The same with a chart of the step."""
    shown = everywhere(material)
    return None if shown is None else Section(title, (Figure("memory-account"), *shown.body))
