"""Captures of graphs that a trace holds: the calls that made nodes instead of launching work.

Between the calls that begin and end a capture, launches, copies and memsets run nothing: each becomes a node. A call
that did launch work was made for a stream that was not captured.
"""

from __future__ import annotations

import re

from hotlap.traces.dialects import LAUNCH, Kind
from hotlap.traces.timeline import NONE, Calls, Timeline

_BEGIN = re.compile(r"^(?:cuda|hip|cu)StreamBeginCapture\w*$")
_END = re.compile(r"^(?:cuda|hip|cu)StreamEndCapture\w*$")
_COPY = re.compile(r"^(?:cuda|hip|cu)Memcpy\w*Async\w*$")
_MEMSET = re.compile(r"^(?:cuda|hip|cu)Memset\w*Async\w*$")


def captures(timeline: Timeline) -> list[list[int]]:
    """The calls of each capture that made a node, in their order. Captures of several threads at the same time are left
    out, since which of them a call belongs to is unknown."""
    calls = timeline.calls
    begins, ends = calls.named(_BEGIN.match), calls.named(_END.match)
    if not begins or not ends:
        return []
    launching = set(timeline.device.launch) - {NONE}
    kinds = _kinds(calls)
    found: list[list[int]] = []
    nodes: list[int] = []
    under_way, overlapping = 0, False
    for call, name in enumerate(calls.name):
        if name in begins:
            overlapping = under_way > 0
            nodes = nodes if overlapping else []
            under_way += 1
        elif name in ends and under_way:
            under_way -= 1
            if not under_way and not overlapping:
                found.append(nodes)
        elif under_way and name in kinds and call not in launching:
            nodes.append(call)
    return found


def node_kinds(timeline: Timeline, capture: list[int]) -> list[int]:
    """For each call of a capture whether it made a kernel, a copy or a memset."""
    kinds = _kinds(timeline.calls)
    return [kinds[timeline.calls.name[it]] for it in capture]


def _kinds(calls: Calls) -> dict[int, int]:
    """What the calls of these names launch."""
    patterns = ((LAUNCH, Kind.KERNEL), (_COPY, Kind.COPY), (_MEMSET, Kind.MEMSET))
    return {name: kind for pattern, kind in patterns for name in calls.named(pattern.match)}
