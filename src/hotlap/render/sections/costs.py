"""The costs of training: energy, money and break-evens."""

from __future__ import annotations

from rich.console import RenderableType

from hotlap.render.blocks import Bullets
from hotlap.render.cost import cost_sentences
from hotlap.render.html.parts import PageBlock
from hotlap.render.layout import paragraphs
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 70
title = "Costs"


def terminal(material: Material) -> Section[RenderableType]:
    """Sentences; Markdown shows them at the top if a price was given."""
    return Section(title, tuple(paragraphs(cost_sentences(material.study, material.costs), style="")))


def page(material: Material) -> Section[PageBlock] | None:
    """The same as a list."""
    lines = tuple(cost_sentences(material.study, material.costs))
    return Section(title, (Bullets(lines),)) if lines else None
