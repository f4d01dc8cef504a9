"""Whether training produces the same results: the losses of both runs."""

from __future__ import annotations

from hotlap.render.html.parts import Figure, Lead, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 7
title = "Does it train the same?"

_LEAD = "Two runs from the same seed and batches: the unmodified script, and with the plan."


def page(material: Material) -> Section[PageBlock]:
    """Both curves, and their difference."""
    return Section(title, (Lead(_LEAD), Figure("losses", heading=True), Figure("difference", heading=True)))
