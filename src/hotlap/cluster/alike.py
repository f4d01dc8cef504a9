"""Which nodes are of one kind: only what ran on equal hardware and software is put into one comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hotlap.records import Machine

_Node = TypeVar("_Node")


def largest_group(nodes: Sequence[tuple[_Node, Machine]]) -> tuple[list[_Node], list[_Node]]:
    """The nodes of the most frequent kind, the first such in their order, and the others."""
    kinds = [machine.traits for _, machine in nodes]
    if not kinds:
        return [], []
    best = max(kinds, key=kinds.count)
    chosen = [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind == best]
    return chosen, [node for (node, _), kind in zip(nodes, kinds, strict=True) if kind != best]
