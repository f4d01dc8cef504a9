"""The nodes of a cluster side by side: what they are, what they reach, and which is slow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from hotlap.records import Machine
from hotlap.render import text
from hotlap.render.fitted import Fitted
from hotlap.render.layout import Trimmed

Nodes: TypeAlias = Sequence[tuple[str, Machine]]

SLOW_SHARE = 0.1
"""A rate that falls short of the median of all nodes by more than this is named: short tests vary by a few percent."""


def cluster(nodes: Nodes) -> RenderableType:
    """The table of nodes, and a sentence for each that is slow or differs from the first."""
    rates = (f">{it}" for it in _heads(nodes))
    table = Fitted(("node", "processor", ">cores", "accelerators", *rates), tuple(_rows(nodes)), indent=0)
    remarks = [Text(it) for it in remarks_on(nodes)]
    note = Text("Rates are shares of the median of all nodes, each the best of several short tests.", style="dim")
    return Trimmed(Group(table, note, Text(), *remarks))


def _rows(nodes: Nodes) -> Iterator[tuple[str, ...]]:
    for name, machine in nodes:
        devices = ", ".join(text.one_line(it.name) for it in machine.accelerators) or "none"
        shares = (_cell(share) for share in shares_of_median(nodes, name).values())
        yield text.one_line(name), text.one_line(machine.processor), str(machine.cores), devices, *shares


def node_line(nodes: Nodes, name: str) -> str:
    """A node in one line: its hardware, and its rates as shares of the median of all."""
    machine = dict(nodes)[name]
    devices = ", ".join(text.one_line(it.name) for it in machine.accelerators)
    parts = [text.one_line(machine.processor), text.count(machine.cores, "core"), devices]
    shares = [f"{rate} {share:.2f}" for rate, share in shares_of_median(nodes, name).items() if share is not None]
    of_median = f"; of the median: {', '.join(shares)}" if shares and len(nodes) > 1 else ""
    return f"{name}  {', '.join(filter(None, parts))}{of_median}"


def remarks_on(nodes: Nodes) -> Iterator[str]:
    """Name the slow nodes and those whose hardware or software differs; one sentence if there are none."""
    found = tuple(troubles(nodes))
    yield from found
    if not found:
        yield "All nodes are alike, and none is slow." if len(nodes) > 1 else "There is one node: nothing to compare."


def troubles(nodes: Nodes) -> Iterator[str]:
    """Name the slow nodes and those whose hardware or software differs."""
    for name, machine in nodes:
        for rate, share in shares_of_median(nodes, name).items():
            if share is not None and share < 1 - SLOW_SHARE:
                load = machine.ceilings.other_load
                busy = f" Other programs kept {load:.1f} of its cores busy meanwhile." if load >= 0.1 else ""
                yield f"{name} is slow: {rate} {text.share(1 - share)} below the median of all nodes.{busy}"
        differs = _differences(nodes[0][1], machine)
        if differs:
            yield f"{name} differs from {nodes[0][0]}: {'; '.join(differs)}. One study uses nodes of one kind only."


def shares_of_median(nodes: Nodes, name: str) -> dict[str, float | None]:
    """Each rate of that node as a share of the median of all; None where it was not measured."""
    rates = {node: _rates(machine) for node, machine in nodes}
    return {rate: _share(rates, name, rate) for rate in _heads(nodes)}


def _share(rates: dict[str, dict[str, float]], name: str, rate: str) -> float | None:
    own = rates[name].get(rate)
    middle = median(it[rate] for it in rates.values() if rate in it)
    return own / middle if own is not None and middle > 0 else None


def _heads(nodes: Nodes) -> list[str]:
    return list(dict.fromkeys(rate for _, machine in nodes for rate in _rates(machine)))


def _rates(machine: Machine) -> dict[str, float]:
    ceilings = machine.ceilings
    found = {f"products ({key})": rate for key, rate in ceilings.matmul_flops_per_second}
    if ceilings.memory_bytes_per_second is not None:
        found["memory"] = ceilings.memory_bytes_per_second
    return found


def _cell(share: float | None) -> str:
    return "" if share is None else f"{share:.2f}"


def _differences(first: Machine, other: Machine) -> list[str]:
    here, there = first.traits, other.traits
    return [f"{name} {there[name]} instead of {here[name]}" for name in here if here[name] != there[name]]
