"""Warnings, which come before all figures."""

from __future__ import annotations

from rich.console import RenderableType

from hotlap.render import text
from hotlap.render.blocks import Bullets
from hotlap.render.html.parts import PageBlock
from hotlap.render.isolation import study_warnings
from hotlap.render.layout import paragraphs
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 84
title = "Warnings"


def terminal(material: Material) -> Section[RenderableType]:
    """A paragraph for each."""
    return Section(title, tuple(paragraphs(study_warnings(material.study), style="yellow")))


def markdown(material: Material) -> Section[str]:
    """A list with the number of warnings in its title."""
    warnings = study_warnings(material.study)
    counted = text.count(len(warnings), "warning").capitalize()
    return Section(counted, tuple(f"- {text.markdown(it)}" for it in warnings))


def page(material: Material) -> Section[PageBlock] | None:
    """A list."""
    warnings = study_warnings(material.study)
    return Section(title, (Bullets(tuple(warnings)),)) if warnings else None
