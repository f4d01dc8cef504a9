"""Memory: its peaks before and after, and step by step."""

from __future__ import annotations

from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 57
title = "Memory"


def page(material: Material) -> Section[PageBlock]:
    """The peaks of both sides, and the memory of both in each watched step."""
    return Section(title, (Figure("memory-peaks", heading=True), Figure("memory", heading=True)))
