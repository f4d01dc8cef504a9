"""Which nodes are of one kind: only what ran on equal hardware and software is put into one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hotlap.records import Machine

_Node = TypeVar("_Node")
_MEMORY_STEP_BYTES = 2**30
_SOFTWARE = ("torch", "numpy")


def kind_of(machine: Machine) -> tuple[object, ...]:
    """What two nodes must have in common: processor, cores, memory in GiB, accelerators, Python and torch."""
    devices = tuple((it.kind, it.name, round(it.memory_bytes / _MEMORY_STEP_BYTES)) for it in machine.accelerators)
    versions = dict(machine.library_versions)
    software = tuple(versions.get(it, "") for it in _SOFTWARE)
    memory = round(machine.memory_bytes / _MEMORY_STEP_BYTES)
    return machine.processor, machine.cores, memory, devices, machine.python_version, *software


def largest_group(nodes: Sequence[tuple[_Node, Machine]]) -> tuple[list[_Node], list[_Node]]:
    """The nodes of the most frequent kind, the first such in their order, and the others."""
    kinds = [kind_of(machine) for _, machine in nodes]
    if not kinds:
        return [], []
    best = max(kinds, key=kinds.count)
    chosen = [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind == best]
    return chosen, [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind != best]
