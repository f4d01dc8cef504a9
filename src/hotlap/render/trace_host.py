"""A trace without an accelerator on the terminal: the host's time and its operators."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.render import text
from hotlap.render.event_names import event_name, event_names
from hotlap.render.lines import Table
from hotlap.traces.records import Breakdown, HostTime, OperatorRow

_LONGEST_SHAPES = 40


def host_tables(breakdown: Breakdown, *, rows: int) -> Iterator[tuple[str, Table]]:
    """The tables with data, with their titles."""
    if breakdown.host_time is not None:
        yield "What the host did in the steps", _host(breakdown.host_time)
    if breakdown.operators:
        yield "Operators, by their own time on the host", _operators(breakdown.operators, rows)


def _host(time: HostTime) -> Table:
    table = Table("", ">time", ">of the steps")
    parts = (
        ("operators", time.operator_nanoseconds),
        ("  of them in the backward pass", time.backward_nanoseconds),
        ("waiting for the data loader", time.loader_nanoseconds),
        ("waiting for a device", time.sync_nanoseconds),
        ("Python and the rest", time.python_nanoseconds),
    )
    for name, nanoseconds in parts:
        share = text.share_of(nanoseconds, time.step_nanoseconds)
        table.add(name, text.length(nanoseconds), share)
    return table


def _operators(rows: tuple[OperatorRow, ...], most: int) -> Table:
    ranked = sorted(rows, key=lambda it: -it.host_nanoseconds)
    shown = ranked[:most]
    whole = sum(it.host_nanoseconds for it in rows)
    names = event_names([it.name for it in shown])
    table = Table("name", ">time", ">of all", ">calls", ">mean", "?shapes", "?called at")
    for row in shown:
        shapes = " ".join("x".join(map(str, it)) for it in row.shapes if it)
        table.add(
            names[row.name],
            text.length(row.host_nanoseconds),
            text.share_of(row.host_nanoseconds, whole),
            f"{row.calls:,}",
            text.length(row.host_nanoseconds / row.calls),
            text.one_line(shapes, limit=_LONGEST_SHAPES),
            event_name(row.place),
        )
    if len(ranked) > len(shown):
        rest = sum(it.host_nanoseconds for it in ranked[len(shown) :])
        share = text.share_of(rest, whole)
        table.add(f"{len(ranked) - len(shown):,} more", text.length(rest), share)
    return table
