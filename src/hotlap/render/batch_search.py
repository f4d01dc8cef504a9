"""The result of a batch-size search: rows, a small curve for the terminal, and remarks."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hotlap.records import BatchRate, BatchSearch, OptimizerFacts, Study
from hotlap.render import text
from hotlap.render.bars import Part, StackedBar
from hotlap.render.disturbance import batch_doubt
from hotlap.render.layout import paragraphs

HEADINGS = (">batch size", ">samples per second", ">ratio", "interval", ">peak memory", "")
_CURVE_CELLS = 10
_COLOUR, _PATTERN, _PLAIN = "#0072b2", "█", "#"
_LINEAR, _SQUARE_ROOT = ("SGD",), ("Adam", "AdamW", "RMSprop")
"""The optimizers that the cited papers cover."""


def search_rows(study: Study) -> tuple[tuple[str, ...], ...]:
    """A row for each size under :data:`HEADINGS`; the last cell marks the knee, or gives the reason for no figures."""
    search = study.batch_search
    return tuple(_row(it, search) for it in search.rates) if search is not None else ()


def batch_search_table(study: Study) -> RenderableType:
    """The rows, the throughput of each size as a bar, and the remarks."""
    search = study.batch_search
    if search is None or not search.rates:
        return Group(*paragraphs(search_remarks(study)))
    table = Table.grid(padding=(0, 2, 0, 0))
    for heading in HEADINGS[:-1]:
        table.add_column(justify="right" if heading.startswith(">") else "left")
    table.add_column(width=_CURVE_CELLS)
    table.add_column(overflow="fold")
    table.add_row(*(Text(it.removeprefix(">"), style="dim") for it in HEADINGS[:-1]))
    full = max(it.throughput for it in search.rates)
    for rate, row in zip(search.rates, search_rows(study), strict=True):
        part = Part(amount=rate.throughput, colour=_COLOUR, pattern=_PATTERN, plain=_PLAIN)
        table.add_row(*row[:-1], StackedBar(parts=(part,), full=full), Text(row[-1], style="dim"))
    return Group(table, *paragraphs(search_remarks(study)))


def knee_sentence(search: BatchSearch) -> str:
    """The knee with its reason."""
    rate = search.rate_of(search.knee)
    if rate is None:
        return "No batch size could be timed."
    within = f"{100 * search.tolerance:g} %"
    best = max(search.rates, key=lambda it: it.throughput)
    if rate.batch_size == search.own:
        return f"The knee is the script's own batch size, {search.own}: no other size gives {within} more throughput."
    measured = f"it reaches {text.ratio(rate.throughput)} the script's samples per second"
    if rate.speedup is not None:
        measured += f" ({text.interval(rate.speedup)})"
    if rate.batch_size == best.batch_size:
        why = _BOUNDS.get(search.bound_by, "it is the fastest size measured")
    else:
        why = f"the fastest size, {best.batch_size}, is less than {within} faster"
    return f"The knee is a batch size of {search.knee}: {measured}, and {why}."


_BOUNDS = {
    "throughput": "larger sizes are not faster",
    "memory": "what is larger does not fit with the headroom",
    "cap": "--max-batch-size forbids larger ones",
    "data-set": "a larger batch would be larger than the data set",
    "budget": "the budget ended before larger ones could be tried",
    "failure": "the script fails with larger ones",
}


def search_remarks(study: Study) -> list[str]:
    """Explain the figures and what another size changes, and give advice marked as such."""
    search = study.batch_search
    if search is None:
        return []
    if search.obstacle:
        return [text.one_line(search.obstacle)]
    return [it for it in (_what(study, search), *_consequences(study, search)) if it]


def _what(study: Study, search: BatchSearch) -> str:
    by = f"by its option {text.one_line(search.flag)}" if search.changed_by == "flag" else "in its DataLoader"
    confidence = next((it.confidence for it in search.rates if it.speedup is not None), 0.0)
    intervals = f"; {100 * confidence:g} % intervals over launches" if confidence else ""
    doubt = batch_doubt(study)
    return (
        f"The whole script, its batch size changed {by}{intervals}. Each size first ran alone, with the largest "
        f"samples found in the data set as one batch; {100 * search.headroom:g} % of "
        f"{text.size(search.memory_bytes) if search.memory_bytes else 'the memory'} had to stay free."
        + (f" {doubt}" if doubt else "")
    )


def _consequences(study: Study, search: BatchSearch) -> Iterator[str]:
    """Warn that another size changes what is learned, with the usual learning rates."""
    factor = search.knee / search.own if search.knee and search.own else 1.0
    if factor == 1:
        return
    yield (
        "Another batch size changes what is learned: fewer or more updates per epoch, with less or more noise in each. "
        "hotlap did not compare losses, and no plan contains a batch size: that decision is yours."
    )
    optimizers = study.baseline.facts.optimizers if study.baseline is not None else ()
    for optimizer in {it.kind: it for it in optimizers}.values():
        yield _advice(optimizer, search.knee, factor)


def _advice(optimizer: OptimizerFacts, size: int, factor: float) -> str:
    known = f"Advice, not measured: with {text.one_line(optimizer.kind)} and a batch size of {size}, "
    if optimizer.kind in _SQUARE_ROOT:
        scaled, rule = math.sqrt(factor), "the square root (Malladi et al. 2022)"
    elif optimizer.kind in _LINEAR:
        scaled, rule = factor, "the linear rule, with warm-up (Goyal et al. 2017)"
    else:
        return f"{known}try several learning rates, and compare held-out loss at equal samples."
    rate = f"begin with {text.ratio(scaled)} the learning rate, by {rule}"
    return f"{known}{rate}, and compare held-out loss at equal samples."


def _row(rate: BatchRate, search: BatchSearch) -> tuple[str, ...]:
    size = str(rate.batch_size)
    if rate.error or rate.seconds_per_sample <= 0:
        return size, "", "", "", "", text.one_line(rate.error)
    speed = text.number(1 / rate.seconds_per_sample)
    peak = text.size(rate.peak_bytes) if rate.peak_bytes else ""
    words = [
        it
        for it, said in (("unmodified", rate.batch_size == search.own), ("knee", rate.batch_size == search.knee))
        if said
    ]
    if rate.speedup is None:
        return size, speed, "", "", peak, ", ".join(words)
    return size, speed, text.ratio(rate.speedup.value), text.interval(rate.speedup), peak, ", ".join(words)
