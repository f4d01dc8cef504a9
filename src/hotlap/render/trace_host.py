"""What a trace without an accelerator says, on the terminal: how the host spent the steps, and on which operators."""

from __future__ import annotations

from collections.abc import Iterator

from hotlap.render import text
from hotlap.render.event_names import event_name, event_names
from hotlap.render.lines import Table
from hotlap.trace.records import Breakdown, HostTime, OperatorRow

_OPERATORS_SHOWN = 10
_LONGEST_SHAPES = 40
_BILLION = 1e9


def host_tables(breakdown: Breakdown) -> Iterator[tuple[str, Table]]:
    """The tables that are there, with their titles."""
    if breakdown.host_time is not None:
        yield "What the host did in the steps", _host(breakdown.host_time)
    if breakdown.operators:
        yield "Operators, by their own time on the host", _operators(breakdown.operators)


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
        share = text.share(nanoseconds / time.step_nanoseconds) if time.step_nanoseconds else "-"
        table.add(name, text.duration(nanoseconds / _BILLION), share)
    return table


def _operators(rows: tuple[OperatorRow, ...]) -> Table:
    ranked = sorted(rows, key=lambda it: -it.host_nanoseconds)
    shown = ranked[:_OPERATORS_SHOWN]
    whole = sum(it.host_nanoseconds for it in rows)
    names = event_names([it.name for it in shown])
    table = Table("name", ">time", ">of all", ">calls", ">mean", "shapes", "called at")
    for row in shown:
        table.add(
            names[row.name],
            text.duration(row.host_nanoseconds / _BILLION),
            text.share(row.host_nanoseconds / whole) if whole else "-",
            f"{row.calls:,}",
            text.duration(row.host_nanoseconds / row.calls / _BILLION),
            text.one_line(" ".join("x".join(map(str, it)) for it in row.shapes if it), limit=_LONGEST_SHAPES),
            event_name(row.place),
        )
    if len(ranked) > len(shown):
        rest = sum(it.host_nanoseconds for it in ranked[len(shown) :])
        share = text.share(rest / whole) if whole else "-"
        table.add(f"{len(ranked) - len(shown):,} more", text.duration(rest / _BILLION), share)
    return table
