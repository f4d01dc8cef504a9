"""The hosts that any trial connected to."""

from __future__ import annotations

from hotlap.render import text
from hotlap.render.blocks import Block, Paragraph
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 82
title = "Hosts that trials connected to"


def everywhere(material: Material) -> Section[Block] | None:
    """Some of them by name."""
    hosts = material.study.hosts
    return Section(title, (Paragraph(", ".join(text.hosts(hosts))),)) if hosts else None
