"""A watched run: the mean step by phase, and the remarks on how it was watched."""

from __future__ import annotations

from hotlap.render import text
from hotlap.render.blocks import Block, Note, Table
from hotlap.render.material import Material
from hotlap.render.sections.api import Section
from hotlap.render.watch import phase_rows

order = 12
title = "Over the run"


def everywhere(material: Material) -> Section[Block] | None:
    """The phases of the mean step after the warm-up, where no other section shows them, and remarks."""
    run = material.study.watch
    if run is None:
        return None
    blocks: list[Block] = []
    if run.account is not None and material.study.account_before is None:
        blocks.append(Table(("phase", ">per step", ">share"), tuple(phase_rows(run.account))))
    return Section(title, (*blocks, *(Note(text.one_line(it)) for it in run.remarks)))
