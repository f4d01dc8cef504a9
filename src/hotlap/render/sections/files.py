"""The files that the script wrote or changed while trials ran."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.html.parts import Heading, PageBlock, Paths
from hotlap.render.layout import indented
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 80
title = "Files the script wrote or changed"

_GROUPS = (
    (False, "changed while trials ran", "yellow"),
    (True, "untouched, trials wrote to copies, which are gone", "dim"),
)
"""Whether trials wrote to a copy, and what that means; changed files are highlighted, since the user must know."""

_ON_A_TERMINAL = 8
_ON_A_PAGE = 40


def terminal(material: Material) -> Section[RenderableType]:
    """A paragraph for each group."""
    return Section(title, tuple(_paragraphs(material.study)))


def page(material: Material) -> Section[PageBlock]:
    """A list for each group."""
    return Section(title, tuple(_lists(material.study)))


def _paragraphs(study: Study) -> Iterator[RenderableType]:
    for redirected, what, style in _GROUPS:
        paths = _paths(study, redirected)
        if paths:
            yield indented(f"{what}: {', '.join(paths[:_ON_A_TERMINAL])}{_more(paths, _ON_A_TERMINAL)}", 2, style)


def _lists(study: Study) -> Iterator[PageBlock]:
    for redirected, what, _ in _GROUPS:
        paths = _paths(study, redirected)
        if paths:
            yield Heading(f"{what[:1].upper()}{what[1:]}")
            yield Paths(tuple(paths[:_ON_A_PAGE]), _more(paths, _ON_A_PAGE).strip())


def _paths(study: Study, redirected: bool) -> list[str]:
    return sorted({text.one_line(it.path) for it in study.files if it.redirected is redirected})


def _more(paths: list[str], shown: int) -> str:
    return f" and {len(paths) - shown} more" if len(paths) > shown else ""
