"""The verdict on a trace on the terminal: causes by cost, each with evidence and remedy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from hotlap.diagnose.trace_verdict import ProductRate, TraceVerdict
from hotlap.diagnose.wording import flop_rate
from hotlap.records import Finding
from hotlap.render import text
from hotlap.render.event_names import event_name
from hotlap.render.lines import Paper, Table, paragraph, styled
from hotlap.render.presentable import shown
from hotlap.render.trace_work import work_lines

_SHOWN = 5
_PRODUCTS_SHOWN = 8
_OVERLAP = "Shares overlap where one cause leads to another."
NOTHING = "No cause of slowness is seen in this trace."
_TO_DO = ("\u2192", "->")
_LABELS = {"wrong-numbers": "wrong numbers", "risk": "risk", "hint": "hint"}


def verdict_lines(verdicts: Sequence[TraceVerdict], paper: Paper) -> list[str]:
    """The verdicts of the traces and, if ``path`` is empty, that of the ranks together."""
    return [line for it in verdicts for line in (*_one(it, paper, named=len(verdicts) > 1), "")]


def _one(verdict: TraceVerdict, paper: Paper, *, named: bool) -> Iterator[str]:
    yield from work_lines(verdict.work, paper)
    if verdict.products:
        yield styled("Matrix products, by their sizes", "bold", paper)
        yield from _products(verdict.products).lines(paper)
        yield ""
    yield from _verdict(verdict, paper, named=named)


def _products(rows: Sequence[ProductRate]) -> Table:
    with_peak = any(it.peak_share is not None for it in rows)
    table = Table("product", "dtype", ">calls", ">time", ">rate", *([">of peak"] if with_peak else []))
    if with_peak:
        table.about = "against the dense rate that the manufacturer publishes for the dtype"
    for it in rows[:_PRODUCTS_SHOWN]:
        batch = f"{it.batch} x " if it.batch > 1 else ""
        sizes = f"{batch}[{it.rows}x{it.common}] [{it.common}x{it.columns}]"
        share = text.share(it.peak_share) if it.peak_share is not None else "-"
        time = text.length(it.nanoseconds)
        name, rate = event_name(it.operator), flop_rate(it.flops_per_second)
        table.add(f"{name} {sizes}", it.dtype, f"{it.calls:,}", time, rate, *([share] if with_peak else []))
    if len(rows) > _PRODUCTS_SHOWN:
        table.add(f"{len(rows) - _PRODUCTS_SHOWN:,} more")
    return table


def _verdict(verdict: TraceVerdict, paper: Paper, *, named: bool) -> Iterator[str]:
    remarks = []
    if named:
        name = shown(text.one_line(PurePath(verdict.path).name)) if verdict.path else "the ranks together"
        remarks.append(name)
    if verdict.devices > 1:
        remarks.append(f"device {verdict.device}, the busiest of {verdict.devices}")
    of = f" ({'; '.join(remarks)})" if remarks else ""
    yield from paragraph(f"Main causes, and what to do{of}", paper, style="bold")
    if not verdict.findings:
        yield from paragraph(NOTHING, paper, indent=2)
    for number, it in enumerate(verdict.findings[:_SHOWN], 1):
        yield from _finding(number, it, paper)
    rest = verdict.findings[_SHOWN:]
    if rest:
        names = text.listed(list(dict.fromkeys(it.rule for it in rest)))
        yield from paragraph(f"{len(rest)} more in `--json`: {names}.", paper, indent=2, style="dim")
    if sum(it.kind == "cost" for it in verdict.findings) > 1:
        yield from paragraph(_OVERLAP, paper, indent=2, style="dim")


def cost_label(it: Finding) -> str:
    """The share that a cause costs, or its kind."""
    return text.cost(it.share) if it.kind == "cost" else _LABELS[it.kind]


def _finding(number: int, it: Finding, paper: Paper) -> Iterator[str]:
    label = cost_label(it)
    yield from paragraph(f"{number}. {shown(text.one_line(it.title))}", paper, indent=2, style="bold")
    site = f" at {shown(text.file_name(it.site.file))}:{it.site.line}" if it.site and it.site.file else ""
    yield from paragraph(f"{it.rule}: {label}{site}", paper, indent=5, style="dim")
    for line in it.evidence:
        yield from paragraph(shown(text.one_line(line)), paper, indent=5)
    if it.remedy:
        yield from paragraph(f"{_TO_DO[paper.ascii_only]} {text.one_line(it.remedy)}", paper, indent=5, style="green")
