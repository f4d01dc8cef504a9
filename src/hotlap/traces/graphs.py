"""Replays of graphs: what launched each, how long its kernels took, and which operators these come from.

The kernels of a replay all belong to one call, so the trace does not name their operators. They are searched in three
places: a capture of the same nodes in the trace, eager launches of kernels of the same name, and kernels' own names,
where a compiler wrote operators into them. The rest stays unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from hotlap.traces.attribution import Attribution
from hotlap.traces.captures import captures, node_kinds
from hotlap.traces.dialects import Kind
from hotlap.traces.events import MISSING
from hotlap.traces.graph_records import GraphKernel, GraphRow, KnownBy
from hotlap.traces.linking import graph_replays
from hotlap.traces.timeline import NONE

_MOST_GRAPHS = 100
_MOST_OPERATORS = 4
_NAMED_BY_INDUCTOR = re.compile(r"^triton_(?:poi|red|per|tem|for|mm|unk)_fused_(?P<operators>\w+?)(?:_\d+)?$")


class _Place(NamedTuple):
    """The key of replays of one graph from one place: the graph and numbers of operator, module and line."""

    graph: int
    operator: int
    module: int
    line: int


class _Origin(NamedTuple):
    """The operators that a kernel comes from, and how that is known."""

    operators: tuple[str, ...] = ()
    known_by: KnownBy = ""


def graph_rows(attribution: Attribution, *, most: int = 100) -> tuple[GraphRow, ...]:
    """List graphs launched within the steps, the costliest first; ``most`` bounds the kernels of each."""
    replays = graph_replays(attribution.timeline.device, attribution.timeline.calls)
    if not replays:
        return ()
    origins = _Origins(attribution, replays)
    first, last = attribution.in_steps
    at: defaultdict[_Place, list[int]] = defaultdict(list)
    for call, events in replays.items():
        if events and first <= attribution.timeline.calls.start[call] < last:
            at[_place(attribution, call, events)].append(call)
    rows = [_row(attribution, place, [replays[it] for it in calls], origins, most) for place, calls in at.items()]
    return tuple(sorted(rows, key=lambda it: -it.nanoseconds)[:_MOST_GRAPHS])


def _place(attribution: Attribution, call: int, events: Sequence[int]) -> _Place:
    timeline = attribution.timeline
    launch = attribution.launches[call]
    operator = NONE if launch.operator == NONE else timeline.operators.name[launch.operator]
    return _Place(timeline.device.graph[events[0]], operator, launch.scope.module, launch.scope.line)


def _row(attribution: Attribution, place: _Place, replays: list[list[int]], origins: _Origins, most: int) -> GraphRow:
    timeline = attribution.timeline
    device = timeline.device
    spent: defaultdict[tuple[int, _Origin], list[int]] = defaultdict(list)
    for events in replays:
        for position, event in enumerate(events):
            origin = origins.of(place.graph, position, len(events), device.name[event])
            spent[device.name[event], origin].append(device.end[event] - device.start[event])
    kernels = [
        GraphKernel(
            name=device.names[name],
            launches=len(lengths),
            nanoseconds=sum(lengths),
            operators=origin.operators,
            known_by=origin.known_by,
        )
        for (name, origin), lengths in spent.items()
    ]
    kernels.sort(key=lambda it: -it.nanoseconds)
    return GraphRow(
        graph=None if place.graph == MISSING else place.graph,
        operator="" if place.operator == NONE else timeline.operators.names[place.operator],
        module=attribution.modules.path(place.module),
        place="" if place.line == NONE else attribution.lines.names[place.line],
        replays=len(replays),
        launches=sum(map(len, replays)),
        nanoseconds=sum(it.nanoseconds for it in kernels),
        known_nanoseconds=sum(it.nanoseconds for it in kernels if it.known_by),
        kernels=tuple(kernels[:most]),
        distinct_kernels=len(kernels),
    )


class _Nodes(NamedTuple):
    """The nodes of a graph that runs them one after another: numbers of names, kinds, and when it first began."""

    names: tuple[int, ...]
    kinds: tuple[int, ...]
    first: int


class _Origins:
    """The operators that the kernels of graphs come from, as far as the trace shows."""

    def __init__(self, attribution: Attribution, replays: dict[int, list[int]]) -> None:
        self._attribution = attribution
        self._timeline = attribution.timeline
        self._eager = self._by_name(replays)
        self._captured = self._by_position(replays)

    def of(self, graph: int, position: int, nodes: int, name: int) -> _Origin:
        """The origin of a node, by its position in a replay with so many nodes and the number of its name."""
        captured = self._captured.get(graph, ())
        if len(captured) == nodes and captured[position]:
            return _Origin((captured[position],), "capture")
        if name in self._eager:
            return _Origin(self._eager[name], "eager")
        named = _NAMED_BY_INDUCTOR.match(self._timeline.device.names[name])
        return _Origin((named["operators"],), "name") if named else _Origin()

    def _by_position(self, replays: dict[int, list[int]]) -> dict[int, tuple[str, ...]]:
        """Find the operator of each node of the graphs whose capture the trace contains.

        Several captures with the same kinds of nodes count only if their operators are the same."""
        made: defaultdict[tuple[int, ...], list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
        for capture in filter(None, captures(self._timeline)):
            end = self._timeline.calls.end[capture[-1]]
            made[tuple(node_kinds(self._timeline, capture))].append((end, tuple(map(self._operator_of, capture))))
        found: dict[int, tuple[str, ...]] = {}
        for graph, nodes in self._linear_graphs(replays).items():
            earlier = {operators for end, operators in made.get(nodes.kinds, ()) if end <= nodes.first}
            if len(earlier) == 1 and not any(map(self._contradicts, nodes.names, *earlier)):
                (found[graph],) = earlier
        return found

    def _contradicts(self, name: int, operator: str) -> bool:
        """Whether elsewhere only other operators launched a kernel of this name, so that the capture is another
        graph's."""
        return bool(operator) and name in self._eager and operator not in self._eager[name]

    def _linear_graphs(self, replays: dict[int, list[int]]) -> dict[int, _Nodes]:
        """The graphs that run their nodes on one stream, always in the order of the capture."""
        device, calls = self._timeline.device, self._timeline.calls
        found: dict[int, _Nodes] = {}
        others: set[int] = {MISSING}
        for call, events in replays.items():
            if events:
                graph = device.graph[events[0]]
                names, kinds = (tuple(device.of(events, it)) for it in (device.name, device.kind))
                known = found.setdefault(graph, _Nodes(names, kinds, calls.start[call]))
                if names != known.names or len(set(device.of(events, device.stream))) > 1:
                    others.add(graph)
        return {graph: nodes for graph, nodes in found.items() if graph not in others}

    def _operator_of(self, call: int) -> str:
        operator = self._attribution.launches[call].operator
        return "" if operator == NONE else self._timeline.operators.name_of(operator)

    def _by_name(self, replays: dict[int, list[int]]) -> dict[int, tuple[str, ...]]:
        """Find the operators that launched kernels of the same names outside of graphs.

        Names that many operators use are ambiguous and left out."""
        device, operators = self._timeline.device, self._timeline.operators
        wanted = {device.name[it] for events in replays.values() for it in events if device.kind[it] == Kind.KERNEL}
        found: defaultdict[int, set[str]] = defaultdict(set)
        for event, launch in enumerate(device.launch):
            if device.name[event] in wanted and launch not in replays:
                operator = self._attribution.launch_of(event).operator
                if operator != NONE:
                    found[device.name[event]].add(operators.name_of(operator))
        return {name: tuple(sorted(it)) for name, it in found.items() if len(it) <= _MOST_OPERATORS}
