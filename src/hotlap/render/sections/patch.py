"""The kept levers as a change of the source, and as a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotlap import plan
from hotlap.records import ScriptFacts, Study
from hotlap.render import markup, text
from hotlap.render.blocks import Paragraph
from hotlap.render.html.parts import Command, Lead, PageBlock, Verbatim
from hotlap.render.kinds.api import presenter_of
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 75
title = "The change"

_HOW_TO_GET_IT = "To have the levers written into the source, as a diff that is run and compared before it is shown:"
_LONGEST_PATCH = 100_000
_MOST_PATCH_LINES = 2_000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """A line of a patch; ``kind`` is ``added``, ``removed``, ``place`` or ``same``."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff."""

    lines: tuple[DiffLine, ...]


def markdown(material: Material) -> Section[str] | None:
    """The plan alone."""
    toml = _plan_text(material.study)
    return Section("The plan", tuple(markup.block(toml.rstrip("\n"), "toml"))) if toml else None


def page(material: Material) -> Section[PageBlock]:
    """The diff, or how to get it, and the plan."""
    return Section(title, (*_diff(material), *_plan(material)))


def patch_command(study: Study) -> str:
    """The command that writes the plan into the source; empty where nothing of it can be written."""
    facts = study.baseline.facts if study.baseline is not None else ScriptFacts()
    if not presenter_of(study.kind).goes_into_source or not plan.has_source_form(study.plan, facts):
        return ""
    return text.of_study("hotlap patch", study.directory)


def _diff(material: Material) -> Iterator[PageBlock]:
    lines = _diff_lines(material.patch)
    if lines:
        yield Lead("What this comes to in the source:")
        yield Diff(lines)
    elif command := patch_command(material.study):
        yield Paragraph(_HOW_TO_GET_IT)
        yield Command(command)


def _plan(material: Material) -> Iterator[PageBlock]:
    toml = _plan_text(material.study)
    if toml:
        name = f", `{text.one_line(material.plan_path)}`" if material.plan_path else ""
        yield Paragraph(f"The plan{name}: levers that are switched on from the outside, the source unchanged.")
        yield Verbatim(toml, "Plan")


def _plan_text(study: Study) -> str:
    """The plan of the kept levers as a file; nothing if none was kept."""
    if not study.plan.settings:
        return ""
    versions = dict(study.machine.library_versions)
    return text.clean(plan.to_toml(study.plan, torch_version=versions.get("torch", ""), study=study.identifier))


def _diff_lines(patch: str) -> tuple[DiffLine, ...]:
    """A unified diff line by line; a very long one is cut at its end."""
    kinds = {"+": "added", "-": "removed", "@": "place", "#": "place"}
    whole = patch.splitlines()
    lines = [text.clean(it) for it in patch[:_LONGEST_PATCH].splitlines()[:_MOST_PATCH_LINES]]
    shown = [
        DiffLine("place" if it.startswith(("+++", "---", "diff ")) else kinds.get(it[:1], "same"), it) for it in lines
    ]
    if len(lines) < len(whole) or len(patch) > _LONGEST_PATCH:
        shown.append(DiffLine("place", "(the rest of the patch is left out here)"))
    return tuple(shown)
