"""Graph captures in a trace: the calls that created nodes instead of launching work.

Between the calls that begin and end a capture, launches, copies and memsets run nothing: each becomes a node. A call
that did launch work used a stream that was not being captured.
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
    """The calls of each capture that made a node, in their order. Concurrent captures of several threads are left out,
    since the trace does not show which one a call belongs to."""
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
    """For each call of a capture, whether it created a kernel, a copy or a memset node."""
    kinds = _kinds(timeline.calls)
    return [kinds[timeline.calls.name[it]] for it in capture]


def _kinds(calls: Calls) -> dict[int, int]:
    """What the calls of these names launch."""
    patterns = ((LAUNCH, Kind.KERNEL), (_COPY, Kind.COPY), (_MEMSET, Kind.MEMSET))
    return {name: kind for pattern, kind in patterns for name in calls.named(pattern.match)}
