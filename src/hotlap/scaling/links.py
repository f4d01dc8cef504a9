"""Seconds of a collective between so many ranks: ring and tree, over the links within a node and between nodes.

A ring passes ``ranks - 1`` messages (an all-reduce twice as many), of which all together are ``(ranks - 1) / ranks`` of
the buffer; a tree sends the buffer up and down, with a message for each of its levels. Both are described by Thakur,
Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH"; NCCL chooses between them
by size. In a ring through several nodes all messages go at the pace of the slowest link.

What a strategy does with collectives takes as long as the bare one, and what was measured beyond that: copies and calls
do not depend on the links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hotlap.records import Cluster, CollectiveName, CollectiveRate, Link

_PASSES: dict[CollectiveName, int] = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}
_BARE: dict[CollectiveName, CollectiveName | None] = {
    "fsdp2-gather": "all-gather", "fsdp2-scatter": "reduce-scatter", "fsdp2-update": None,
    "zero-1-update": "all-gather",
}  # fmt: skip
"""The collective within what a strategy does."""

ADDED = frozenset(_BARE)
"""The names of what strategies do, which is measured on the processor alone."""


def collective_seconds(name: CollectiveName, size_bytes: float, ranks: int, cluster: Cluster) -> float:
    """The seconds of a collective over a buffer of so many bytes, or of what a strategy does with a part or parameter
    of as many; nodes are filled one after the other."""
    if ranks < 2 or size_bytes <= 0:
        return 0.0
    if name not in _BARE:
        return _bare_seconds(name, size_bytes, ranks, cluster)
    bare = _BARE[name]
    seconds = _bare_seconds(bare, size_bytes, ranks, cluster) if bare is not None else 0.0
    return max(0.0, seconds + _beyond_bare(name, bare, size_bytes, ranks, cluster))


def _beyond_bare(
    name: CollectiveName, bare: CollectiveName | None, size_bytes: float, ranks: int, cluster: Cluster
) -> float:
    """What was measured beyond the bare collective between as many processes, or the nearest number; 0 if nothing was.

    It may be negative: many calls that do not wait for each other take less time than one after the other.
    """
    rates = [it for it in cluster.measured if it.name == name]
    if not rates:
        return 0.0
    nearest = _nearest(rates, ranks)
    without = [it for it in cluster.measured if (it.name, it.processes) == (bare, nearest.processes)]
    return _on_line(nearest, size_bytes) - sum(_on_line(it, size_bytes) for it in without[:1])


def _nearest(rates: Sequence[CollectiveRate], ranks: int) -> CollectiveRate:
    return min(rates, key=lambda it: abs(math.log(it.processes / ranks)))


def _on_line(rate: CollectiveRate, size_bytes: float) -> float:
    return rate.latency_seconds + size_bytes / rate.bytes_per_second


def _bare_seconds(name: CollectiveName, size_bytes: float, ranks: int, cluster: Cluster) -> float:
    nodes = math.ceil(ranks / cluster.devices_per_node)
    here = min(ranks, cluster.devices_per_node)
    if nodes == 1:
        return _within(name, size_bytes, ranks, cluster)
    ring = _ring(name, size_bytes, ranks, _slower(cluster.within, cluster.between))
    if name != "all-reduce":
        return ring
    return min(ring, _tree(size_bytes, here, nodes, cluster))


def _within(name: CollectiveName, size_bytes: float, ranks: int, cluster: Cluster) -> float:
    rates = [it for it in cluster.measured if it.name == name]
    exact = next((it for it in rates if it.processes == ranks), None)
    if exact is not None:
        return _on_line(exact, size_bytes)
    if rates:
        return _ring(name, size_bytes, ranks, link_of(_nearest(rates, ranks)))
    ring = _ring(name, size_bytes, ranks, cluster.within)
    return min(ring, _tree(size_bytes, ranks, 1, cluster)) if name == "all-reduce" else ring


def link_of(rate: CollectiveRate) -> Link:
    """The link over which a ring takes as long as was measured."""
    passes = _PASSES[rate.name]
    messages = passes * (rate.processes - 1)
    return Link(
        latency_seconds=rate.latency_seconds / messages,
        bytes_per_second=rate.bytes_per_second * messages / rate.processes,
    )


def _ring(name: CollectiveName, size_bytes: float, ranks: int, link: Link) -> float:
    messages = _PASSES[name] * (ranks - 1)
    return messages * (link.latency_seconds + size_bytes / ranks / link.bytes_per_second)


def _tree(size_bytes: float, here: int, nodes: int, cluster: Cluster) -> float:
    """A chain within each node and two binary trees between nodes, each with half of the buffer."""
    depth = math.ceil(math.log2(nodes)) if nodes > 1 else 0
    latency = 2 * ((here - 1) * cluster.within.latency_seconds + depth * cluster.between.latency_seconds)
    slowest = min([cluster.within.bytes_per_second] * (here > 1) + [cluster.between.bytes_per_second] * (nodes > 1))
    return latency + 2 * size_bytes / slowest


def _slower(one: Link, other: Link) -> Link:
    return Link(
        latency_seconds=max(one.latency_seconds, other.latency_seconds),
        bytes_per_second=min(one.bytes_per_second, other.bytes_per_second),
    )
