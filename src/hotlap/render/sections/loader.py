"""The rates of the loader alone, by its settings."""

from __future__ import annotations

from hotlap.render.html.parts import Figure, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 31
title = "The loader by itself"


def page(material: Material) -> Section[PageBlock]:
    """Its rates as bars."""
    return Section(title, (Figure("loader"),))
