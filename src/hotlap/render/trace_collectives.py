"""Collectives, on the terminal: their bandwidths in one trace, and who comes last among several ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from hotlap.render import text
from hotlap.render.event_names import event_name
from hotlap.render.lines import Paper, Table, styled
from hotlap.render.presentable import shown
from hotlap.traces.collective_records import (
    CollectiveComparison,
    CollectiveRow,
    LateArrival,
    SharedCollectiveRow,
)

_ROWS_SHOWN = 8
_RANKS_SHOWN = 32
_LATEST_SHOWN = 5
_WAITING = "bus bandwidth as NCCL's tests define it; times include waiting for ranks that arrive later"
_TRANSFER = "by the time of the last rank to arrive, which did not wait"


def collective_lines(rows: tuple[CollectiveRow, ...], paper: Paper) -> Iterator[str]:
    """The collectives of one trace; nothing without any."""
    if not rows:
        return
    yield ""
    yield styled("Collectives", "bold", paper)
    yield from _rows(rows).lines(paper)


def _rows(rows: tuple[CollectiveRow, ...]) -> Table:
    sized = any(it.message_bytes for it in rows)
    if not sized:
        table = Table(
            "collective", ">calls", ">time", ">mean", ">shortest", about="the trace does not record message sizes"
        )
    else:
        rates = (">bus bandwidth", ">at best")
        heads = ("collective", "group", ">ranks", "dtype", ">size", ">calls", ">time", *rates)
        table = Table(*heads, about=_WAITING)
    for it in rows[:_ROWS_SHOWN]:
        time = text.length(it.nanoseconds)
        if not sized:
            mean = text.length(it.nanoseconds / it.calls)
            table.add(it.collective, f"{it.calls:,}", time, mean, text.length(it.shortest_nanoseconds))
            continue
        rates = (_rate(it.bus_bytes_per_second), _rate(it.best_bus_bytes_per_second))
        table.add(*_what(it), f"{it.calls:,}", time, *rates)
    if len(rows) > _ROWS_SHOWN:
        table.add(f"{len(rows) - _ROWS_SHOWN:,} more")
    return table


def _what(row: CollectiveRow | SharedCollectiveRow) -> tuple[str, ...]:
    size = text.size(row.message_bytes) if row.message_bytes else ""
    ranks = str(row.group_size) if row.group_size else ""
    return row.collective, event_name(row.group), ranks, event_name(row.dtype), size


def _rate(bytes_per_second: float | None) -> str:
    return text.rate(bytes_per_second, "B") if bytes_per_second else "-"


def arrival_lines(comparison: CollectiveComparison | None, paper: Paper) -> Iterator[str]:
    """The rank that arrives last, of those with traces; nothing with fewer than two."""
    if comparison is None:
        return
    yield styled("Last rank to reach each collective", "bold", paper)
    yield from _arrivals(comparison).lines(paper)
    if comparison.latest:
        yield ""
        yield styled("Longest waits for one rank", "bold", paper)
        yield from _latest(comparison.latest).lines(paper)
    if any(it.message_bytes for it in comparison.rows):
        yield ""
        yield styled("Collectives without the wait", "bold", paper)
        yield from _transfers(comparison.rows).lines(paper)
    yield ""


def _arrivals(comparison: CollectiveComparison) -> Table:
    about = f"{comparison.matched:,} collectives matched between ranks"
    if comparison.unmatched:
        about += f", {comparison.unmatched:,} not matched"
    offset = any(abs(it.clock_offset_nanoseconds) >= 1_000_000 for it in comparison.ranks)
    heads = (">rank", ">last at", ">others waited", ">waited itself", *([">clock ahead"] if offset else []), "trace")
    table = Table(*heads, about=about)
    ranked = sorted(comparison.ranks, key=lambda it: -it.waited_for_nanoseconds)
    for it in ranked[:_RANKS_SHOWN]:
        last = f"{it.times_last:,} of {it.collectives:,}"
        times = (text.length(it.waited_for_nanoseconds), text.length(it.waiting_nanoseconds))
        clock = [_signed(it.clock_offset_nanoseconds)] if offset else []
        table.add(str(it.rank), last, *times, *clock, shown(text.one_line(PurePath(it.path).name)))
    if len(ranked) > _RANKS_SHOWN:
        table.add("...", f"{len(ranked) - _RANKS_SHOWN} more")
    return table


def _signed(nanoseconds: int) -> str:
    return ("-" if nanoseconds < 0 else "") + text.length(abs(nanoseconds))


def _latest(rows: tuple[LateArrival, ...]) -> Table:
    table = Table(">waited", ">for rank", "at", "group", ">step")
    for it in rows[:_LATEST_SHOWN]:
        number = f" {it.sequence}" if it.sequence is not None else ""
        step = "" if it.step is None else str(it.step)
        table.add(text.length(it.nanoseconds), str(it.rank), f"{it.collective}{number}", event_name(it.group), step)
    return table


def _transfers(rows: tuple[SharedCollectiveRow, ...]) -> Table:
    heads = ("collective", "group", ">ranks", "dtype", ">size", ">calls", ">time", ">waiting", ">bus bandwidth")
    table = Table(*heads, about=_TRANSFER)
    for it in rows[:_ROWS_SHOWN]:
        times = (text.length(it.transfer_nanoseconds), text.length(it.waiting_nanoseconds))
        table.add(*_what(it), f"{it.calls:,}", *times, _rate(it.bus_bytes_per_second))
    if len(rows) > _ROWS_SHOWN:
        table.add(f"{len(rows) - _ROWS_SHOWN:,} more")
    return table
