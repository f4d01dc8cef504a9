"""Seconds of a collective between so many ranks: ring and tree, over the links within a node and between nodes.

A ring passes ``ranks - 1`` messages (an all-reduce twice as many), of which all together are ``(ranks - 1) / ranks`` of
the buffer; a tree sends the buffer up and down, with a message for each of its levels. Both are described by Thakur,
Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH"; NCCL chooses between them
by size. In a ring through several nodes all messages go at the pace of the slowest link.
"""

from __future__ import annotations

import math

from hotlap.records import Cluster, CollectiveName, CollectiveRate, Link

_PASSES: dict[CollectiveName, int] = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1}


def collective_seconds(name: CollectiveName, size_bytes: float, ranks: int, cluster: Cluster) -> float:
    """The seconds of a collective over a buffer of so many bytes; nodes are filled one after the other."""
    if ranks < 2 or size_bytes <= 0:
        return 0.0
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
        return exact.latency_seconds + size_bytes / exact.bytes_per_second
    if rates:
        nearest = min(rates, key=lambda it: abs(math.log(it.processes / ranks)))
        return _ring(name, size_bytes, ranks, link_of(nearest))
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
