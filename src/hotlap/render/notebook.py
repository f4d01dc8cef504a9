"""A study in a notebook: the answer and the time account as bars; metrics, levers and findings are folded.

A fragment of HTML without scripts, style sheets or addresses. Text takes its colour from the notebook's theme. It is
built as a tree, so that the serialiser escapes every name from a script.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from xml.etree.ElementTree import Element, SubElement, tostring

from hotlap.records import PhaseAccount, Skipped, Study
from hotlap.render import text
from hotlap.render.account import SHOWN_PHASES, samples_factor
from hotlap.render.blocks import Note, Table
from hotlap.render.disturbance import account_doubt, finding_doubt
from hotlap.render.findings import place
from hotlap.render.headline import headline
from hotlap.render.isolation import study_warnings
from hotlap.render.lever_table import MARKS, Row, footnote, skipped_rows, tried_rows
from hotlap.render.machine import machine_line
from hotlap.render.material import Material
from hotlap.render.presentable import presentable
from hotlap.render.sections import metrics

_PLAIN_COLUMNS = 100
_SUMMARY_LINES = 24
_FINDINGS_SHOWN = 5
_CELL = "text-align:left;padding:2px 12px 2px 0;vertical-align:top"
_NUMBER = "text-align:right;padding:2px 12px 2px 0;white-space:nowrap;vertical-align:top"
_QUIET = "opacity:0.75;margin:4px 0"
_NOTHING: Mapping[str, str] = MappingProxyType({})


def mime_bundle(study: Study) -> dict[str, str]:
    """The study for any front end: as HTML, and as text that fits a terminal."""
    return {"text/plain": summary(study), "text/html": fragment(study)}


def summary(study: Study) -> str:
    """The answer as text that fits a screen of 24 lines, whose last line says how to see the rest."""
    study = presentable(study, study.workload.directory)
    said = headline(study)
    lines = [*_wrapped(f"hotlap  {text.command(study.workload)}"), *_wrapped(said.sentence)]
    for it in (*said.details, *said.output.splitlines(), *_counted(study)):
        lines += _wrapped(it, indent="  ")
    rest = "study.html('report.html') writes the whole report; study.steps() has the steps as rows."
    if len(lines) > _SUMMARY_LINES - 1:
        lines = [*lines[: _SUMMARY_LINES - 2], "  ..."]
    return "\n".join([*lines, rest])


def _wrapped(words: str, indent: str = "") -> list[str]:
    return textwrap.wrap(words, _PLAIN_COLUMNS, initial_indent=indent, subsequent_indent=indent)


def _counted(study: Study) -> Iterator[str]:
    """The plan, and how much more there is to read."""
    if study.plan.settings:
        yield f"In the plan: {text.listed([text.one_line(it.lever) for it in study.plan.settings])}."
    tried = [it for it in study.outcomes if not isinstance(it.verdict, Skipped)]
    found = [(len(tried), "lever tried", "levers tried"), (len(study.findings), "finding", "findings")]
    counts = [text.count(*it) for it in (*found, (len(study_warnings(study)), "warning", "warnings")) if it[0]]
    if counts:
        yield f"{text.listed(counts)}."


def fragment(study: Study) -> str:
    """The whole study as one ``<div>``."""
    whole = Element("div", {"style": "max-width:60em;line-height:1.4"})
    study = presentable(study, study.workload.directory)
    said = headline(study)
    _add(whole, "p", f"hotlap  {text.command(study.workload)}", style=f"{_QUIET};font-family:monospace")
    _add(whole, "p", said.sentence, style="font-size:1.2em;font-weight:bold;margin:4px 0")
    for line in said.details:
        _add(whole, "p", line, style=_QUIET)
    if said.output:
        _add(whole, "pre", said.output, style="white-space:pre-wrap")
    if study.account_before is not None and not study.account_before.is_of_calls:
        _account(whole, study.account_before, study.account_after, "after" if study.plan.settings else "given up")
        if doubt := account_doubt(study):
            _add(whole, "p", doubt, style=_QUIET)
    _metrics(whole, study)
    if study.outcomes:
        _levers(whole, study)
    if study.findings:
        _findings(whole, study)
    _add(whole, "p", machine_line(study.machine), style=_QUIET)
    if study.directory:
        _add(whole, "p", f"Kept in {text.one_line(study.directory)}", style=_QUIET)
    return tostring(whole, encoding="unicode", method="html")


# ---------------------------------------------------------------------------------------------
# The time account
# ---------------------------------------------------------------------------------------------


def _account(whole: Element, before: PhaseAccount, after: PhaseAccount | None, after_name: str) -> None:
    """Bars on one scale, for the samples of one step of the original script, with their figures as a table."""
    accounts = [("before" if after else "unmodified", before, 1.0)]
    if after is not None:
        accounts.append((after_name, after, samples_factor(before, after)))
    _heading(whole, "Where a step's time goes")
    full = max(account.wall * factor for _, account, factor in accounts)
    for name, account, factor in accounts:
        _bar(whole, name, account, factor, full)
    rows = [
        (it.title, *(text.duration(account.seconds_in(it.phase) * factor) for _, account, factor in accounts))
        for it in SHOWN_PHASES
    ]
    rows.append(("whole step", *(text.duration(account.wall * factor) for _, account, factor in accounts)))
    colours = {it.title: it.colour for it in SHOWN_PHASES}
    _table(whole, ("phase", *(f">{name}" for name, *_ in accounts)), rows, colours=colours)


def _bar(whole: Element, name: str, account: PhaseAccount, factor: float, full: float) -> None:
    spoken = ", ".join(f"{it.title} {text.duration(account.seconds_in(it.phase) * factor)}" for it in SHOWN_PHASES)
    line = SubElement(whole, "div", {"role": "img", "aria-label": f"{name}: {spoken}"})
    line.set("style", "display:flex;align-items:center;margin:2px 0")
    _add(line, "span", name, style="flex:0 0 5em")
    track = SubElement(line, "span", {"style": "flex:1 1 auto;display:flex;height:1em"})
    for it in SHOWN_PHASES:
        share = max(0.0, account.seconds_in(it.phase) * factor / full) if full > 0 else 0.0
        if share > 0:
            style = f"flex:0 0 {min(1.0, share):.2%};background:{it.colour}"
            SubElement(track, "span", {"title": it.title, "style": style})
    _add(line, "span", text.duration(account.wall * factor), style="flex:0 0 6em;text-align:right;font-weight:bold")


# ---------------------------------------------------------------------------------------------
# Metrics, levers and findings
# ---------------------------------------------------------------------------------------------


def _metrics(whole: Element, study: Study) -> None:
    found = metrics.everywhere(Material(study=study))
    if found is None:
        return
    folded = _folded(whole, found.title)
    for block in found.body:
        match block:
            case Table():
                _table(folded, block.headings, block.rows)
            case Note():
                _add(folded, "p", block.text, style=_QUIET)


def _levers(whole: Element, study: Study) -> None:
    tried = tried_rows(study.outcomes, study.account_before)
    skipped = skipped_rows(study.outcomes)
    not_tried = sum(isinstance(it.verdict, Skipped) for it in study.outcomes)
    open_part = _folded(whole, f"Levers ({len(tried)} tried)")
    if tried:
        _table(open_part, ("lever", ">speedup", "numbers", ">memory", "verdict", "reason"), [*map(_cells, tried)])
        _add(open_part, "p", footnote(study.outcomes), style=_QUIET)
    if skipped:
        folded = SubElement(open_part, "details")
        _add(folded, "summary", f"{text.count(not_tried, 'lever')} not tried")
        _table(folded, ("lever", "reason"), skipped)


def _cells(row: Row) -> tuple[str, ...]:
    name = f"{MARKS[row.tone][0]} {row.lever}" + (f" ({row.values})" if row.values else "")
    reason = " ".join(text.sentence(it) for it in (row.reason, *row.below) if it)
    return name, row.speedup, row.quality, row.memory, row.verdict, reason


def _findings(whole: Element, study: Study) -> None:
    shown = SubElement(_folded(whole, f"Findings ({len(study.findings)})"), "ul", {"style": "margin:4px 0"})
    for it in study.findings[:_FINDINGS_SHOWN]:
        where = f" ({place(it, study.workload.directory)})" if it.site is not None else ""
        words = filter(None, (f"{text.sentence(it.title)}{where}", finding_doubt(it, study), text.sentence(it.remedy)))
        _add(shown, "li", " ".join(words))
    more = len(study.findings) - _FINDINGS_SHOWN
    if more > 0:
        _add(shown, "li", f"and {more} more in `hotlap report`")


# ---------------------------------------------------------------------------------------------
# Parts
# ---------------------------------------------------------------------------------------------


def _table(
    whole: Element,
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    colours: Mapping[str, str] = _NOTHING,
) -> None:
    """A table whose first column names its rows; ``>`` before a heading aligns its column to the right."""
    styles = [_NUMBER if it.startswith(">") else _CELL for it in headings]
    table = SubElement(whole, "table", {"style": "border-collapse:collapse;margin:4px 0;border:0"})
    head = SubElement(SubElement(table, "thead"), "tr")
    for heading, style in zip(headings, styles, strict=True):
        _add(head, "th", heading.removeprefix(">"), scope="col", style=f"{style};font-weight:normal;opacity:0.75")
    body = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(body, "tr")
        for number, (cell, style) in enumerate(zip(row, styles, strict=True)):
            if number > 0:
                _add(line, "td", cell, style=style)
                continue
            name = _add(line, "th", cell, scope="row", style=f"{style};font-weight:normal")
            if cell in colours:
                name.set("style", f"{style};font-weight:normal;border-left:1em solid {colours[cell]};padding-left:6px")


def _heading(whole: Element, words: str) -> None:
    _add(whole, "p", words, style="font-weight:bold;margin:10px 0 4px 0")


def _folded(whole: Element, words: str) -> Element:
    """A part that is opened by a click, so that the answer fits a screen."""
    folded = SubElement(whole, "details")
    _add(folded, "summary", words, style="font-weight:bold;margin:10px 0 4px 0")
    return folded


def _add(parent: Element, tag: str, words: str, **attributes: str) -> Element:
    node = SubElement(parent, tag, attributes)
    node.text = words
    return node
