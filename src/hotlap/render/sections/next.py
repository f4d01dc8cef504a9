"""The commands to run next."""

from __future__ import annotations

from rich.console import RenderableType
from rich.text import Text

from hotlap.render import markup, text
from hotlap.render.html.parts import Command, PageBlock
from hotlap.render.kinds.api import presenter_of
from hotlap.render.layout import indented
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 90
_ON_THE_PAGE = ("hotlap patch", "hotlap report --html")


def terminal(material: Material) -> Section[RenderableType]:
    """Each command with its purpose below it."""
    pieces: list[RenderableType] = []
    for command, purpose in _commands(material):
        pieces.append(indented(Text(command, style="bold cyan", overflow="fold"), 2))
        pieces.append(indented(Text(purpose, style="dim"), 4))
    return Section("Next", tuple(pieces))


def markdown(material: Material) -> Section[str]:
    """A list."""
    lines = (f"- {markup.code(command)} {text.markdown(purpose)}" for command, purpose in _commands(material))
    return Section("What to do next", tuple(lines))


def page(material: Material) -> Section[PageBlock]:
    """What the page does not show itself: it is the page, and its section on the change has the patch."""
    commands = (it for it in _commands(material) if not it[0].startswith(_ON_THE_PAGE))
    return Section("What to do next", tuple(Command(*it) for it in commands))


def _commands(material: Material) -> tuple[tuple[str, str], ...]:
    study = material.study
    return tuple(presenter_of(study.kind).next_commands(study, material.plan_path))
