"""What the model alone makes of other batch sizes, in rows and in a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hotlap.records import BatchRate
from hotlap.render import text
from hotlap.render.layout import paragraphs

HEADINGS = (">samples per step", ">samples per second", ">ratio", "interval", ">peak memory", "")


def batch_rows(rates: Sequence[BatchRate]) -> tuple[tuple[str, ...], ...]:
    """A row for each size under :data:`HEADINGS`; why there are no figures stands in the last cell."""
    return tuple(_row(it) for it in rates)


def batch_table(rates: Sequence[BatchRate], doubt: str = "") -> RenderableType:
    """The rows for a terminal, and what they are not."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for heading in HEADINGS:
        table.add_column(justify="right" if heading.startswith(">") else "left", no_wrap=bool(heading))
    table.add_row(*(Text(it.removeprefix(">"), style="dim") for it in HEADINGS))
    for row in batch_rows(rates):
        table.add_row(*row[:-1], Text(row[-1], style="dim"))
    return Group(table, *paragraphs([batch_remark(rates, doubt)]))


def batch_remark(rates: Sequence[BatchRate], doubt: str = "") -> str:
    """What was timed, what it is not, and what disturbed it."""
    confidence = rates[0].confidence if rates else 0.0
    return (
        f"The model alone, fed from memory with its first batch grown or cut; {100 * confidence:g} % intervals over "
        "launches. Another batch size also changes what is learned and may need another learning rate, so no "
        "plan contains one: that decision is yours." + (f" {doubt}" if doubt else "")
    )


def _row(rate: BatchRate) -> tuple[str, ...]:
    size = text.number(rate.samples_per_step)
    if rate.error or rate.seconds_per_sample <= 0:
        return size, "", "", "", "", text.one_line(rate.error)
    speed, peak = text.number(1 / rate.seconds_per_sample), text.size(rate.peak_bytes) if rate.peak_bytes else ""
    if rate.speedup is None:
        return size, speed, "", "", peak, "unmodified"
    interval = f"{rate.speedup.low:.2f} to {rate.speedup.high:.2f}"
    return size, speed, text.ratio(rate.speedup.value), interval, peak, ""
