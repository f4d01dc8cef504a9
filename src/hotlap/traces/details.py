"""Optional parts of a breakdown: collectives, memory and the critical path."""

from __future__ import annotations

import msgspec

from hotlap.traces.arrivals import CollectiveLog
from hotlap.traces.collectives import collective_calls, collective_rows
from hotlap.traces.critical_path import critical_path
from hotlap.traces.memory import memory_use
from hotlap.traces.records import Breakdown
from hotlap.traces.timeline import Timeline


def collective_log(timeline: Timeline) -> CollectiveLog:
    """The collectives of a trace that was read with operators' inputs."""
    return CollectiveLog(timeline.facts, collective_calls(timeline))


def detailed(breakdown: Breakdown, timeline: Timeline, log: CollectiveLog) -> Breakdown:
    """Add collectives, memory and the critical path to a breakdown.

    The timeline must be read with operators' inputs. Without a part of the device's work there is no critical path."""
    return msgspec.structs.replace(
        breakdown,
        collectives=collective_rows(log.calls),
        memory=memory_use(timeline),
        critical_path=None if breakdown.unreliable else critical_path(timeline),
    )
