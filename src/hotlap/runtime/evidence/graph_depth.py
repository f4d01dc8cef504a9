"""How often a tensor was accumulated with its graph: ``total = total + loss``, once a step, for example."""

from __future__ import annotations

import heapq
from typing import Any

MOST_NODES = 4000


def accumulations(tensor: Any) -> int:
    """How many operations of the same kind as the tensor's last one lie behind each other in its graph, at most.

    Only operations whose result has the tensor's own shape are followed, which leaves out the model behind a loss; so
    the number is small and constant for what was computed in this step, and grows with every step for what is carried
    on from step to step. 0 for a tensor without a graph. The walk goes from the newest operation to older ones and
    ends after ``MOST_NODES``.
    """
    last = tensor.grad_fn
    if last is None:
        return 0
    kind, shape = last.name(), tuple(tensor.shape)
    depth = {last: 1}
    waiting = [(-_age(last), 0, last)]
    deepest, number = 1, 0
    # An operation is younger than those it builds on: taken by age, its depth is final when its turn comes.
    while waiting and number < MOST_NODES:
        _, _, node = heapq.heappop(waiting)
        for behind, _ in node.next_functions:
            if behind is None or _shape(behind) != shape:
                continue
            deeper = depth[node] + (behind.name() == kind)
            deepest = max(deepest, deeper)
            if behind not in depth:
                number += 1
                heapq.heappush(waiting, (-_age(behind), number, behind))
            depth[behind] = max(depth.get(behind, 0), deeper)
    return deepest


def _age(node: Any) -> int:
    """Counts up with every operation of a thread."""
    return int(node._sequence_nr())


def _shape(node: Any) -> tuple[int, ...] | None:
    """Of what the operation computed; None where torch does not report it."""
    metadata = getattr(node, "_input_metadata", None)
    return tuple(metadata[0].shape) if metadata else None
