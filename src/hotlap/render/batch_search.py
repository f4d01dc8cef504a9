"""The result of a batch-size search: rows, a small curve for the terminal, and remarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hotlap.records import BatchAdvice, BatchRate, BatchSearch, Study
from hotlap.render import text
from hotlap.render.bars import Part, StackedBar
from hotlap.render.disturbance import batch_doubt
from hotlap.render.fitted import Fitted
from hotlap.render.layout import paragraphs

HEADINGS = (">batch size", ">samples per second", ">ratio", "interval", ">peak memory", "")
_CURVE_CELLS = 10
_GAP = 2
_COLOUR, _PATTERN, _PLAIN = "#0072b2", "█", "#"


def search_rows(study: Study) -> tuple[tuple[str, ...], ...]:
    """A row for each size under :data:`HEADINGS`; the last cell marks the knee, or gives the reason for no figures."""
    search = study.batch_search
    return tuple(_row(it, search) for it in search.rates) if search is not None else ()


def batch_search_table(study: Study) -> RenderableType:
    """The rows, the throughput of each size as a bar, and the remarks."""
    search = study.batch_search
    if search is None or not search.rates:
        return Group(*paragraphs(search_remarks(study)))
    table = _Rates(search_rows(study), tuple(it.throughput for it in search.rates))
    return Group(table, *paragraphs(search_remarks(study)))


@dataclass(frozen=True, slots=True)
class _Rates:
    """The rows, with a bar for each throughput where there is space for it."""

    rows: tuple[tuple[str, ...], ...]
    throughputs: tuple[float, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fitted = Fitted(HEADINGS, self.rows, indent=0)
        widths = fitted.widths_within(options.max_width - _CURVE_CELLS - 2 * _GAP)
        if widths is None:
            yield fitted
            return
        table = Table.grid(padding=(0, _GAP, 0, 0))
        for heading, width in zip(HEADINGS[:-1], widths, strict=False):
            table.add_column(justify="right" if heading.startswith(">") else "left", width=width)
        table.add_column(width=_CURVE_CELLS)
        table.add_column(overflow="fold", width=widths[-1])
        table.add_row(*(Text(it.removeprefix(">"), style="dim") for it in HEADINGS[:-1]))
        for throughput, row in zip(self.throughputs, self.rows, strict=True):
            part = Part(amount=throughput, colour=_COLOUR, pattern=_PATTERN, plain=_PLAIN)
            bar = StackedBar(parts=(part,), full=max(self.throughputs))
            table.add_row(*row[:-1], bar, Text(row[-1], style="dim"))
        yield table


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
    if not search.knee or search.knee == search.own:
        return
    compared = (
        "The verdict on `batch-size` says what was compared."
        if any(it.lever == "batch-size" for it in study.outcomes)
        else "hotlap did not compare losses: `hotlap tune --allow batch-size` does, and can then put a larger batch "
        "into a plan."
    )
    yield (
        "Another batch size changes what is learned: fewer or more updates per epoch, with less or more noise in each. "
        f"{compared}"
    )
    if study.batch_advice is not None:
        yield from advice_sentences(study.batch_advice, search.knee)


def advice_sentences(advice: BatchAdvice, size: int) -> Iterator[str]:
    """The learning rate by published rules, and the noise scale that says how far they can be trusted."""
    known = f"Advice, not measured: with {text.one_line(advice.optimizer)} and a batch size of {size}, "
    compare = "and compare held-out loss at equal samples"
    if advice.factor is None:
        yield f"{known}try several learning rates, {compare}."
    else:
        rule = _RULES[advice.rule]
        yield f"{known}begin with {text.ratio(advice.factor)} the learning rate, by {rule}, {compare}."
    yield from _noise(advice)


_RULES = {
    "linear": "the linear rule, with warm-up (Goyal et al. 2017)",
    "square-root": "the square root (Malladi et al. 2022)",
}


def _noise(advice: BatchAdvice) -> Iterator[str]:
    noise = advice.noise
    if noise is None:
        if advice.noise_missing:
            yield f"The noise of gradients was not measured: {text.one_line(advice.noise_missing)}"
        return
    end = (
        f"{text.number(noise.low)} to {text.number(noise.high)}" if noise.high else f"{text.number(noise.low)} or more"
    )
    interval = f"{100 * noise.confidence:g} % interval: {end}"
    over = f"{noise.gradients} gradients early in the training"
    source = "McCandlish et al. 2018"
    if noise.scale is None:
        yield f"Gradient noise scale: no signal was found in the noise ({interval} samples; {over}; {source})."
        return
    measured = f"Measured gradient noise scale: {text.number(noise.scale)} samples ({interval}; {over}; {source})."
    rate = "" if advice.tempered is None else f" the useful learning rate is {text.ratio(advice.tempered)}, and"
    samples = f" the same loss takes {text.ratio(advice.samples_factor or 1.0)} as many samples"
    yield f"{measured} By it,{rate}{samples}. It grows during training."


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
