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
    """The same as on a terminal."""
    return Section("What to do next", tuple(Command(*it) for it in _commands(material)))


def _commands(material: Material) -> tuple[tuple[str, str], ...]:
    study = material.study
    return tuple(presenter_of(study.kind).next_commands(study, material.plan_path))
