"""The timeline of the last profiled steps, before and after, and the paths of their traces."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hotlap.records import Study
from hotlap.render import text
from hotlap.render.blocks import Note
from hotlap.render.html.charts.timeline import longest_table
from hotlap.render.html.parts import Figure, Heading, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 45
title = "Timeline"


@dataclass(frozen=True, slots=True)
class TraceFiles:
    """The paths of traces, each with what it is of (empty for a single one), and commands that read them."""

    paths: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str], ...]


def page(material: Material) -> Section[PageBlock]:
    """Both timelines, their longest events, and the traces; for one that is missing, why."""
    study = material.study
    flame = Figure("flame", heading=True)
    return Section(title, (flame, *_timeline(material), *map(Note, _missing(material)), *_traces(study)))


def _timeline(material: Material) -> Iterator[PageBlock]:
    if material.lanes is not None and material.lanes.lanes:
        yield Figure("timeline", heading=True)
        yield longest_table(material.lanes, material.plan_lanes)


def _missing(material: Material) -> Iterator[str]:
    """One sentence for each timeline that is not drawn although it could have been."""
    study = material.study
    if study.trace_path and material.lanes is None:
        yield "The trace of the unmodified script is no longer stored, or cannot be read."
    if not (study.plan.settings and study.trace_path) or material.plan_lanes is not None:
        return
    if study.plan_not_profiled:
        yield study.plan_not_profiled
    elif study.plan_trace_path:
        yield "The trace with the plan is no longer stored, or cannot be read."
    elif study.status == "interrupted":
        yield "The plan was not profiled: the search was interrupted before."
    else:
        yield "The plan was not profiled: this study was made by a version of hotlap that did not do so."


def _traces(study: Study) -> Iterator[PageBlock]:
    paths = [it for it in (study.trace_path, study.plan_trace_path) if it]
    if not paths:
        return
    words = [text.shell_word(it) for it in paths]
    if len(paths) == 1:
        yield Heading("The whole trace")
        yield TraceFiles((("", text.one_line(paths[0], limit=1000)),), ((f"hotlap trace {words[0]}", ""),))
        return
    yield Heading("The whole traces")
    shown = tuple(zip(("before", "after"), (text.one_line(it, limit=1000) for it in paths), strict=True))
    commands = (
        (f"hotlap trace {words[1]}", "where the time goes with the plan"),
        (f"hotlap diff {words[0]} {words[1]}", "what differs between the two, and why"),
    )
    yield TraceFiles(shown, commands)
