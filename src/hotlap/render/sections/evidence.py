"""The measurements behind the headline, drawn one by one."""

from __future__ import annotations

from hotlap.render.html.parts import Figure, Lead, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 5
title = "The measurements"

_LEAD = "What the first sentence of this page was computed from."


def page(material: Material) -> Section[PageBlock]:
    """The rounds, and the single steps of the last replicate."""
    figures = (Figure(it, heading=True) for it in ("replicates", "step-series", "step-histogram"))
    return Section(title, (Lead(_LEAD), *figures))
