"""Replayed graphs of a trace, on the terminal: what launched them, and which operators their kernels come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hotlap.render import text
from hotlap.render.event_names import event_name, event_names
from hotlap.render.lines import Paper, Table, paragraph, styled
from hotlap.traces.graph_records import GraphKernel, GraphRow, KnownBy
from hotlap.traces.records import Breakdown

_GRAPHS_OPENED = 2
_KNOWN_BY: dict[KnownBy, str] = {
    "capture": "its capture",
    "eager": "eager launches of the kernel",
    "name": "the kernel's name",
    "": "",
}


def graph_lines(breakdown: Breakdown, paper: Paper, *, rows: int) -> Iterator[str]:
    """All graphs in one table, and the kernels of the costliest ones from the place where each costs most; nothing
    where none was replayed."""
    graphs = breakdown.graphs
    if not graphs:
        return
    yield ""
    yield styled("Replayed graphs", "bold", paper)
    yield from _graphs(graphs, rows).lines(paper)
    costliest_place: dict[str, GraphRow] = {}
    for number, graph in enumerate(graphs, 1):
        costliest_place.setdefault(_name(graph, number), graph)
    for name, graph in list(costliest_place.items())[:_GRAPHS_OPENED]:
        yield ""
        yield from paragraph(f"Kernels of {name}, launched by {_launched_by(graph)}", paper, style="bold")
        yield from _kernels(graph, rows).lines(paper)


def _graphs(graphs: Sequence[GraphRow], rows: int) -> Table:
    table = Table("graph", "launched by", ">replays", ">kernels each", ">time", ">time each")
    for number, it in enumerate(graphs[:rows], 1):
        each = it.launches / it.replays
        table.add(
            _name(it, number),
            _launched_by(it),
            f"{it.replays:,}",
            f"{each:,.0f}" if each == int(each) else f"{each:,.1f}",
            text.length(it.nanoseconds),
            text.length(it.nanoseconds // it.replays),
        )
    if len(graphs) > rows:
        table.add(f"{len(graphs) - rows:,} more (--rows)")
    return table


def _name(graph: GraphRow, number: int) -> str:
    return f"graph {graph.graph}" if graph.graph is not None else f"graph without a number, {number}"


def _launched_by(graph: GraphRow) -> str:
    """The innermost of each: operator, module and place."""
    inside = [graph.operator, *graph.module[-1:]]
    what = " in ".join(event_name(it) for it in inside if it)
    if graph.place:
        return f"{what or 'Python'} at {event_name(graph.place)}"
    return what or "unknown"


def _kernels(graph: GraphRow, rows: int) -> Table:
    table = Table("name", ">time", ">of the graph", ">launches", "?operator", "?known by", about=_about(graph))
    shown = graph.kernels[:rows]
    names = event_names([it.name for it in shown])
    for it in shown:
        share = text.share_of(it.nanoseconds, graph.nanoseconds)
        table.add(
            names[it.name],
            text.length(it.nanoseconds),
            share,
            f"{it.launches:,}",
            _operators(it),
            _KNOWN_BY[it.known_by],
        )
    if graph.distinct_kernels > len(shown):
        table.add(f"{graph.distinct_kernels - len(shown):,} more (--rows)")
    return table


def _operators(kernel: GraphKernel) -> str:
    if kernel.known_by == "name":
        return f"fused: {event_name(kernel.operators[0])}"
    return " or ".join(map(event_name, kernel.operators))


def _about(graph: GraphRow) -> str:
    unknown = graph.nanoseconds - graph.known_nanoseconds
    if not unknown:
        return ""
    if not graph.known_nanoseconds:
        return (
            "their operators are unknown: the trace has neither the capture of the graph nor eager launches of the "
            "same kernels"
        )
    return f"the operators of {text.length(unknown)} are unknown: neither captured nor launched eagerly in this trace"
