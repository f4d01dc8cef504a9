"""The findings: causes of lost time and of problems, with the results of their levers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType

from hotlap.records import Finding, Study
from hotlap.render import text
from hotlap.render.blocks import Note, Paragraph, Tone
from hotlap.render.disturbance import finding_doubt
from hotlap.render.findings import answered, findings_list, label, overlap, place, rules, share_interval
from hotlap.render.html.parts import Lead, PageBlock
from hotlap.render.material import Material
from hotlap.render.sections.api import Section

order = 40
title = "Findings"

_MOST_IN_MARKDOWN = 30
_LEAD = "Causes of lost time and of trouble that could be shown, with what they rest on."
_TONES_OF_KINDS: dict[str, Tone] = {"cost": "neutral", "wrong-numbers": "bad", "risk": "neutral", "hint": "neutral"}
_KIND_WORDS = {"cost": "costs time", "wrong-numbers": "wrong numbers", "risk": "risk", "hint": "hint"}


@dataclass(frozen=True, slots=True)
class FindingView:
    """A finding to be shown. ``label`` says what it costs, a share of the step or of the run; ``fates`` say what
    trials showed, each with its tone; ``line`` is the line of source, where it is known."""

    label: str
    kind: str
    tone: Tone
    title: str
    line: str
    about: tuple[str, ...]
    evidence: tuple[str, ...]
    remedy: str
    fates: tuple[tuple[Tone, str], ...]


@dataclass(frozen=True, slots=True)
class FindingList:
    """All findings as a list of a page."""

    views: tuple[FindingView, ...]


def terminal(material: Material) -> Section[RenderableType] | None:
    """One paragraph each, after its cost."""
    return Section(title, (findings_list(material.study),)) if material.study.findings else None


def markdown(material: Material) -> Section[str] | None:
    """A list."""
    found = material.study.findings
    return Section(f"{title}: {len(found)}", tuple(_findings(material.study))) if found else None


def page(material: Material) -> Section[PageBlock] | None:
    """A list, or a sentence if no cause was found."""
    study = material.study
    if study.findings:
        lines = material.source_lines or ("",) * len(study.findings)
        views = tuple(_view(it, study, line) for it, line in zip(study.findings, lines, strict=True))
        several = sum(1 for it in views if it.label) > 1
        note = (Note(overlap(study.findings)),) if several else ()
        return Section(title, (Lead(_LEAD), FindingList(views), *note))
    if study.profiled_steps:
        return Section(title, (Paragraph("No known cause of lost time was found."),))
    return None


def _view(it: Finding, study: Study, line: str) -> FindingView:
    return FindingView(
        label=f"{label(it)} {text.whole_of(it.share)}" if it.kind == "cost" else "",
        kind=_KIND_WORDS[it.kind],
        tone=_TONES_OF_KINDS[it.kind],
        title=text.one_line(it.title),
        line=text.one_line(line, limit=200),
        about=tuple(filter(None, (rules(it), place(it, study.workload.directory), _interval(it)))),
        evidence=tuple(filter(None, (*map(text.one_line, it.evidence), finding_doubt(it, study)))),
        remedy=text.one_line(it.remedy),
        fates=tuple(answered(it, study)),
    )


def _interval(it: Finding) -> str:
    """The interval of the cost; the label names the whole."""
    found = share_interval(it)
    return "" if found == text.whole_of(it.share) else found


def _findings(study: Study) -> Iterator[str]:
    for it in study.findings[:_MOST_IN_MARKDOWN]:
        about = (rules(it), place(it, study.workload.directory), share_interval(it))
        yield f"- **{text.markdown(f'{label(it)}: {it.title}')}** {text.markdown(' · '.join(filter(None, about)))}"
        yield from (f"  - {text.markdown(line)}" for line in (*it.evidence, finding_doubt(it, study)) if line)
        if it.remedy:
            yield f"  - What to do: {text.markdown(it.remedy)}"
        yield from (f"  - {text.markdown(words)}" for _, words in answered(it, study))
    if len(study.findings) > _MOST_IN_MARKDOWN:
        yield f"- and {len(study.findings) - _MOST_IN_MARKDOWN} more"
