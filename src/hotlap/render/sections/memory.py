"""Memory, step by step."""

from __future__ import annotations

from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 57
title = "Memory"


def page(material: Material) -> Section[PageBlock]:
    """Allocated and reserved memory in each step."""
    return Section(title, (Figure("memory"),))
