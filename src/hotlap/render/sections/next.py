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
    for command, purpose in commands_of(material.study, material.plan_path):
        pieces.append(indented(Text(command, style="bold cyan", overflow="fold"), 2))
        pieces.append(indented(Text(purpose, style="dim"), 4))
    return Section("Next", tuple(pieces))


def markdown(material: Material) -> Section[str]:
    """A list."""
    commands = commands_of(material.study, material.plan_path)
    lines = (f"- {markup.code(command)}: {text.markdown(purpose)}" for command, purpose in commands)
    return Section("What to do next", tuple(lines))


def page(material: Material) -> Section[PageBlock]:
    """Without the other forms, which are the page itself and its section on the change."""
    study = material.study
    commands = presenter_of(study.kind).next_commands(study, material.plan_path)
    return Section("What to do next", tuple(Command(*it) for it in commands))


def commands_of(study: Study, plan_path: str) -> Iterator[tuple[str, str]]:
    """The commands to run next, each with its purpose; ``plan_path`` is the path of the plan, or empty."""
    yield from presenter_of(study.kind).next_commands(study, plan_path)
    yield from _other_forms(study)


def _other_forms(study: Study) -> Iterator[tuple[str, str]]:
    """The plan as a change of the source, and the report as a page."""
    if comparison_of_plan(study) is not None and (command := patch_command(study)):
        yield command, "the plan as a tested diff"
    if study.status != "script-failed":
        yield f"{text.of_study('hotlap report', study.directory)} --html", "a page to pass on"
