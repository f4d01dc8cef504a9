"""The levers: the gain of each, and why it was or was not kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType

from hotlap.records import Study
from hotlap.render import markup, text
from hotlap.render.blocks import Fact, Note
from hotlap.render.calls import are_calls
from hotlap.render.findings import answers
from hotlap.render.html.parts import Figure, Heading, Lead, PageBlock, Pairs
from hotlap.render.lever_table import MARKS, Row, footnote, kept_words, lever_table, skipped_rows, tried_rows
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 20
title = "Levers"

_LEAD = "A lever is one change that can make training faster without changing the script's source."
_LEAD_OF_CALLS = "A lever is one change that can make calls of a model faster: how torch runs it, or another engine."


@dataclass(frozen=True, slots=True)
class TriedLevers:
    """The tried levers as a table of a page."""

    rows: tuple[Row, ...]


def terminal(material: Material) -> Section[RenderableType] | None:
    """One table of tried levers, and one of the others."""
    study = material.study
    if not study.outcomes:
        return None
    return Section(title, (lever_table(study.outcomes, study.account_before, _reasons(study)),))


def markdown(material: Material) -> Section[str] | None:
    """A table, and a list of levers that were not tried."""
    outcomes = material.study.outcomes
    if not outcomes:
        return None
    return Section(f"{title} kept: {kept_words(outcomes)}", tuple(_levers(material.study)))


def page(material: Material) -> Section[PageBlock]:
    """The waterfall of speedups with its table."""
    lead = _LEAD_OF_CALLS if are_calls(material.study) else _LEAD
    return Section(title, (Lead(lead), Figure("levers"), *_tried(material.study), *_not_tried(material.study)))


def _tried(study: Study) -> Iterator[PageBlock]:
    tried = tried_rows(study.outcomes, study.account_before, _reasons(study))
    if tried:
        yield Heading("What was tried")
        yield TriedLevers(tried)
        note = footnote(study.outcomes)
        if note:
            yield Note(note)


def _not_tried(study: Study) -> Iterator[PageBlock]:
    skipped = skipped_rows(study.outcomes)
    if skipped:
        yield Heading("What was not tried")
        yield Pairs(tuple(Fact(lever, why) for lever, why in skipped))


def _reasons(study: Study) -> dict[str, str]:
    """Why each lever was tried."""
    return {it.lever: answers(it.lever, study.findings) for it in study.outcomes}


def _levers(study: Study) -> Iterator[str]:
    rows = []
    for it in tried_rows(study.outcomes, study.account_before):
        speedup = it.speedup.replace("  ", " (") + ")" if it.speedup else ""
        why = " ".join(filter(None, (it.reason, *it.below)))
        name = f"{it.lever}: {it.values}" if it.values else it.lever
        rows.append((f"{MARKS[it.tone][0]} {name}", speedup, it.quality, it.memory, it.verdict, why))
    if rows:
        yield from markup.table(("lever", ">speedup (interval)", "numbers", ">memory", "verdict", "why"), rows)
        yield ""
        yield text.markdown(footnote(study.outcomes))
    skipped = skipped_rows(study.outcomes)
    if skipped:
        yield from ("", "Not tried:", "")
        yield from (f"- {text.markdown(lever)}: {text.markdown(why)}" for lever, why in skipped)
