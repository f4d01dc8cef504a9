"""Which nodes are of one kind: only what ran on equal hardware and software is put into one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hotlap.records import Machine

_Node = TypeVar("_Node")
_SOFTWARE = ("torch", "numpy")


def traits_of(machine: Machine) -> dict[str, str]:
    """What two nodes must have in common, by name: processor, cores, memory, accelerators, Python and libraries."""
    versions = dict(machine.library_versions)
    devices = [f"{it.name} ({_gibibytes(it.memory_bytes)})" for it in machine.accelerators]
    return {
        "processor": machine.processor,
        "cores": str(machine.cores),
        "memory": _gibibytes(machine.memory_bytes),
        "accelerators": ", ".join(devices) or "none",
        "Python": machine.python_version,
        **{it: versions.get(it, "none") for it in _SOFTWARE},
    }


def largest_group(nodes: Sequence[tuple[_Node, Machine]]) -> tuple[list[_Node], list[_Node]]:
    """The nodes of the most frequent kind, the first such in their order, and the others."""
    kinds = [traits_of(machine) for _, machine in nodes]
    if not kinds:
        return [], []
    best = max(kinds, key=kinds.count)
    chosen = [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind == best]
    return chosen, [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind != best]


def _gibibytes(size_bytes: int) -> str:
    # Nodes of one kind differ by some MiB in what their firmware reserves.
    return f"{round(size_bytes / 2**30)} GiB"
