"""What the file of a section must contain, and how all sections are found.

One file is one section of a report; its ``order`` places it among the others. ``everywhere`` makes it of what a report
is made of, in blocks that every medium can show. ``terminal``, ``markdown`` and ``page`` are for what looks different
there: each goes before ``everywhere``, and a section without either is not shown in that medium. A section decides by
what was measured whether it has something to show: None and one without a body are left out.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, Generic, TypeVar

from rich.console import RenderableType

from hotlap.render.blocks import Block, Bullets, Note, Paragraph, Table
from hotlap.render.html.parts import PageBlock
from hotlap.render.layout import paragraphs, table_of
from hotlap.render.markup import bullets, sentence, table
from hotlap.render.material import Material

_OWN_FILES = frozenset({"api"})
Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class Section(Generic[Body]):
    """A section of a report in one medium; ``body`` is its content without the title."""

    title: str
    body: tuple[Body, ...]


@dataclass(frozen=True, slots=True)
class Placed:
    """A section of a page with its identifier and order."""

    name: str
    order: int
    section: Section[PageBlock]


def terminal_sections(material: Material) -> Iterator[Section[RenderableType]]:
    """The sections with content, in order."""
    return (it for _, it in _made("terminal", material, _on_a_terminal))


def markdown_sections(material: Material) -> Iterator[Section[str]]:
    """The sections as lines of Markdown."""
    return (it for _, it in _made("markdown", material, _in_markdown))


def page_sections(material: Material) -> Iterator[Placed]:
    """The sections of a page."""
    for module, it in _made("page", material, lambda block: (block,)):
        yield Placed(module.__name__.rpartition(".")[2].replace("_", "-"), module.order, it)


def _made(
    medium: str, material: Material, convert: Callable[[Block], Iterable[Any]]
) -> Iterator[tuple[ModuleType, Section[Any]]]:
    for module in _modules():
        if hasattr(module, medium):
            found = getattr(module, medium)(material)
        elif hasattr(module, "everywhere"):
            found = _converted(module.everywhere(material), convert)
        else:
            continue
        if found is not None and found.body:
            yield module, found


def _converted(found: Section[Block] | None, convert: Callable[[Block], Iterable[Any]]) -> Section[Any] | None:
    if found is None:
        return None
    return Section(found.title, tuple(piece for block in found.body for piece in convert(block)))


def _on_a_terminal(block: Block) -> Iterable[RenderableType]:
    match block:
        case Table():
            return (table_of(block),)
        case Note():
            return paragraphs([block.text])
        case Paragraph():
            return paragraphs([block.text], style="")
        case Bullets():
            return paragraphs(block.lines, style="")


def _in_markdown(block: Block) -> Iterable[str]:
    """The lines of a paragraph, followed by an empty one."""
    match block:
        case Table():
            lines = table(block.headings, block.rows)
        case Note() | Paragraph():
            lines = sentence(block.text)
        case Bullets():
            lines = bullets(block.lines)
    return (*lines, "")


@cache
def _modules() -> tuple[ModuleType, ...]:
    import hotlap.render.sections as folder

    names = [it.name for it in pkgutil.iter_modules(folder.__path__) if it.name not in _OWN_FILES]
    modules = [importlib.import_module(f"{folder.__name__}.{it}") for it in names]
    return tuple(sorted(modules, key=lambda it: (it.order, it.__name__)))
