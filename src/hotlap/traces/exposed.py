"""Communication that nothing is computed next to: how much of each step, and in which of its collectives.

On a device that is time in which a communication kernel ran and no other kernel did. With gloo, whose collectives run
on threads of the host, it is time in which no operator of torch ran.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict

from hotlap.traces.collective_records import ExposedCall, ExposedCommunication
from hotlap.traces.collectives import CollectiveCall, alike
from hotlap.traces.dialects import Kind, is_collective
from hotlap.traces.intervals import Intervals, subtraction, union
from hotlap.traces.timeline import Timeline

_MOST_CALLS = 20
_COMPUTES_NOTHING = re.compile(r"^(?:c10d|autograd|torch::autograd)::|^record_param_comms$")
"""Operators that only wait, issue a collective, or contain others."""


def exposed_communication(timeline: Timeline, calls: tuple[CollectiveCall, ...]) -> ExposedCommunication | None:
    """What of these calls was exposed; None where the trace has no rank or no marked step with any of them."""
    in_steps = [it for it in calls if it.step is not None]
    if timeline.facts.rank is None or not in_steps:
        return None
    base = timeline.facts.base_nanoseconds
    computing = _computing(timeline)
    spans: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    exposed: Counter[tuple[str, int, int, int]] = Counter()
    counts = Counter((it.step, it.kind) for it in in_steps)
    seen: Counter[tuple[int | None, str]] = Counter()
    for it in in_steps:
        seen[it.step, it.kind] += 1
        span = (it.start - base, it.end - base)
        spans[it.step or 0].append(span)
        key = (it.kind, alike(it).message_bytes, seen[it.step, it.kind], counts[it.step, it.kind])
        exposed[key] += subtraction(union([span]), computing).total
    steps = [it for it in timeline.steps if it.number in spans]
    return ExposedCommunication(
        rank=timeline.facts.rank,
        steps=tuple(it.end - it.start for it in steps),
        exposed=tuple(subtraction(union(spans[it.number]), computing).total for it in steps),
        calls=tuple(
            ExposedCall(collective=kind, message_bytes=size, position=position, count=count, nanoseconds=total)
            for (kind, size, position, count), total in exposed.most_common(_MOST_CALLS)
            if total
        ),
    )


def _computing(timeline: Timeline) -> Intervals:
    """When the device computed; without a device, when any operator ran."""
    device, operators = timeline.device, timeline.operators
    collective = device.named(is_collective)
    kernels = [it for it in range(len(device)) if device.kind[it] == Kind.KERNEL and device.name[it] not in collective]
    if kernels:
        return union(device.spans(kernels))
    others = operators.named(_COMPUTES_NOTHING.match)
    return union(operators.spans([it for it in range(len(operators)) if operators.name[it] not in others]))
