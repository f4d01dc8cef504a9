"""The commands to run next."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from hotlap.gain import comparison_of_plan
from hotlap.records import Study
from hotlap.render import markup, text
from hotlap.render.html.parts import Command, PageBlock
from hotlap.render.kinds.api import presenter_of
from hotlap.render.layout import indented
from hotlap.render.material import Material
from hotlap.render.sections.api import Section
from hotlap.render.sections.patch import patch_command

order = 90


def terminal(material: Material) -> Section[RenderableType]:
    """Each command with its purpose below it."""
    pieces: list[RenderableType] = []
    for command, purpose in (*_commands(material), *_other_forms(material.study)):
        pieces.append(indented(Text(command, style="bold cyan", overflow="fold"), 2))
        pieces.append(indented(Text(purpose, style="dim"), 4))
    return Section("Next", tuple(pieces))


def markdown(material: Material) -> Section[str]:
    """A list."""
    commands = (*_commands(material), *_other_forms(material.study))
    lines = (f"- {markup.code(command)} {text.markdown(purpose)}" for command, purpose in commands)
    return Section("What to do next", tuple(lines))


def page(material: Material) -> Section[PageBlock]:
    """Without the other forms, which are the page itself and its section on the change."""
    return Section("What to do next", tuple(Command(*it) for it in _commands(material)))


def _commands(material: Material) -> tuple[tuple[str, str], ...]:
    study = material.study
    return tuple(presenter_of(study.kind).next_commands(study, material.plan_path))


def _other_forms(study: Study) -> Iterator[tuple[str, str]]:
    """The plan as a change of the source, and the report as a page."""
    if comparison_of_plan(study) is not None and (command := patch_command(study)):
        yield command, "writes the plan into the source as far as possible, as a tested diff"
    if study.status != "script-failed":
        yield text.of_study("hotlap report --html", study.directory), "writes this as a page to pass on"
