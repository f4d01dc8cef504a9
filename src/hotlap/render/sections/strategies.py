"""What was predicted of other strategies for several ranks, and what their trials measured."""

from __future__ import annotations

from hotlap.render.blocks import Block, Bullets, Note, Table
from hotlap.render.material import Material
from hotlap.render.sections.api import Section
from hotlap.render.strategies import HEADINGS, reasons, remarks, rows

order = 22
title = "Strategies for several ranks"


def everywhere(material: Material) -> Section[Block] | None:
    """A row for each strategy, why some were not tried, and what the figures are."""
    choice = material.study.strategies
    if choice is None or not choice.forecasts:
        return None
    left_out = tuple(reasons(choice))
    bullets = (Bullets(left_out),) if left_out else ()
    table, note = Table(HEADINGS, tuple(rows(material.study, choice))), Note(" ".join(remarks(choice)))
    return Section(title, (table, *bullets, note))
