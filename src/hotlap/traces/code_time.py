"""Time by module and by source line of the user's code: forward as it ran, backward with its forward operator."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from hotlap.traces.attribution import Attribution, Direction, Scope
from hotlap.traces.chains import Chains
from hotlap.traces.code_records import CodeTime, CodeWork, DirectedTime, LineRow, ModuleRow
from hotlap.traces.timeline import NONE, Events


def code_time(attribution: Attribution, *, most: int = 100, instances: bool = False) -> CodeTime | None:
    """Break down the time of a trace by module and source line; ``most`` bounds the rows of each table.
    With ``instances`` each instance of a module has its own row, otherwise those of one class share one.

    None where the trace records neither modules nor lines of the user's code.
    """
    timeline = attribution.timeline
    if not attribution.modules.names and not attribution.lines.names:
        return None
    work = _spent(attribution)
    window, device_window = _windows(attribution)
    modules = _ModuleTree(attribution, work, _own_name if instances else _class_of)
    lines = _line_rows(attribution.lines, work)
    return CodeTime(
        window_nanoseconds=window,
        device_window_nanoseconds=device_window,
        modules=modules.rows(most),
        lines=lines[:most],
        outside_modules=_sum_where(work, lambda it: it.module == NONE),
        outside_lines=_sum_where(work, lambda it: it.line == NONE),
        unmapped_backward=_sum_where(work, lambda it: it.direction == Direction.UNMAPPED),
        exact_lines=bool(timeline.stacks) and not len(timeline.frames),
        distinct_modules=len(modules),
        distinct_lines=len(lines),
    )


class _Spent(NamedTuple):
    """Nanoseconds of devices and of the host, by scope."""

    device: Counter[Scope]
    host: Counter[Scope]


def _spent(attribution: Attribution) -> _Spent:
    """The time of each scope within the steps; scopes that differ only in their place are one."""
    timeline = attribution.timeline
    first, last = attribution.in_steps
    device, host = timeline.device, timeline.operators
    spent = _Spent(Counter(), Counter())
    for event, launched in enumerate(device.launched):
        if first <= launched < last:
            scope = attribution.launch_of(event).scope
            spent.device[scope._replace(place="")] += device.end[event] - device.start[event]
    for start, scope, own in zip(host.start, attribution.scopes, attribution.own_nanoseconds, strict=True):
        if first <= start < last:
            spent.host[scope._replace(place="")] += own
    return spent


def _windows(attribution: Attribution) -> tuple[int, int]:
    """The available host time and device time: the steps, else from the first event to the last."""
    timeline = attribution.timeline
    devices = len(timeline.by_device())
    if timeline.steps_span is not None:
        first, last = timeline.steps_span
        return last - first, (last - first) * devices
    return _reach(timeline.operators), _reach(timeline.device) * devices


def _reach(events: Events) -> int:
    return max(events.end) - events.start[0] if len(events) else 0


_Key = TypeVar("_Key")


def _by_key(spent: _Spent, keys_of: Callable[[Scope], Sequence[_Key]]) -> dict[_Key, CodeWork]:
    """Sums of all keys of a scope; the first one's self times are the scope's."""
    sums: defaultdict[_Key, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for side, times in enumerate(spent):
        for scope, nanoseconds in times.items():
            direction = "forward" if scope.direction == Direction.FORWARD else "backward"
            keys = keys_of(scope)
            for key in keys:
                sums[key][side][f"{direction}_nanoseconds"] += nanoseconds
            if keys:
                sums[keys[0]][side][f"{direction}_self_nanoseconds"] += nanoseconds
    return {
        key: CodeWork(device=DirectedTime(**device), host=DirectedTime(**host)) for key, (device, host) in sums.items()
    }


def _sum_where(spent: _Spent, counts: Callable[[Scope], bool]) -> CodeWork:
    return _by_key(spent, lambda it: (None,) if counts(it) else ()).get(None, CodeWork())


def _by_cost(work: CodeWork) -> tuple[int, int]:
    return -work.device.nanoseconds, -work.host.nanoseconds


class _ModuleTree:
    """The tree of modules. Instances below the same parents are one node where ``label`` calls them the same."""

    def __init__(self, attribution: Attribution, spent: _Spent, label: Callable[[str], str]) -> None:
        instances = attribution.modules
        self._nodes = Chains()
        node_of: list[int] = []
        self._names: defaultdict[int, set[str]] = defaultdict(set)
        self._calls: Counter[int] = Counter()
        for chain, name in enumerate(instances.names):
            parent = instances.parent(chain)
            node = self._nodes.below(NONE if parent == NONE else node_of[parent], label(name))
            node_of.append(node)
            self._names[node].add(name)
            self._calls[node] += attribution.module_calls[chain]
        self._work = _by_key(
            spent, lambda it: () if it.module == NONE else list(self._nodes.upwards(node_of[it.module]))
        )

    def __len__(self) -> int:
        return len(self._nodes.names)

    def rows(self, most: int) -> tuple[ModuleRow, ...]:
        """The costliest nodes in the order of a tree, the costliest of siblings first.

        A parent costs at least as much as its children, so no node appears without its parents.
        """
        ranked = sorted(range(len(self)), key=lambda it: (_by_cost(self._of(it)), it))[:most]
        inside: defaultdict[int, list[int]] = defaultdict(list)
        for node in ranked:
            inside[self._nodes.parent(node)].append(node)
        return tuple(map(self._row, _in_tree(inside)))

    def _of(self, node: int) -> CodeWork:
        return self._work.get(node, CodeWork())

    def _row(self, node: int) -> ModuleRow:
        work = self._of(node)
        return ModuleRow(
            path=self._nodes.path(node),
            instances=len(self._names[node]),
            calls=self._calls[node],
            device=work.device,
            host=work.host,
        )


def _in_tree(inside: Mapping[int, list[int]]) -> Iterator[int]:
    waiting = list(reversed(inside.get(NONE, [])))
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(inside.get(node, []))


def _own_name(instance: str) -> str:
    return instance


def _class_of(instance: str) -> str:
    name, _, number = instance.rpartition("_")
    return name if name and number.isdecimal() else instance


def _line_rows(lines: Chains, spent: _Spent) -> tuple[LineRow, ...]:
    """Functions and lines by self time; a recursive one counts once."""
    places = {
        it: tuple(dict.fromkeys(lines.names[link] for link in lines.upwards(it))) for it in range(len(lines.names))
    }
    found = _by_key(spent, lambda it: places.get(it.line, ()))
    rows = [LineRow(place=place, device=work.device, host=work.host) for place, work in found.items()]
    return tuple(sorted(rows, key=_by_own_cost))


def _by_own_cost(work: CodeWork) -> tuple[int, int, int, int]:
    return -work.device.self_nanoseconds, -work.host.self_nanoseconds, *_by_cost(work)
