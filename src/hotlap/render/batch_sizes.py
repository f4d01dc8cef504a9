"""Throughput and memory of the model alone at other batch sizes, in rows."""

from __future__ import annotations

from collections.abc import Sequence

from hotlap.records import BatchRate
from hotlap.render import text

HEADINGS = (">samples per step", ">samples per second", ">ratio", "interval", ">peak memory", "")


def batch_rows(rates: Sequence[BatchRate]) -> tuple[tuple[str, ...], ...]:
    """A row for each size under :data:`HEADINGS`; the last cell gives the reason for no figures."""
    return tuple(_row(it) for it in rates)


def batch_remark(rates: Sequence[BatchRate], doubt: str = "") -> str:
    """Explain what was timed, and what disturbed it."""
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
