"""What a trace comes to: the one thing that costs its device most time, or that it computes nearly all of the time."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from hotlap.traces.records import Breakdown, Conclusion, DeviceBreakdown, HostTime, Limit

WORTH_NAMING = 0.10
"""Of the window. A device that loses less to its largest loss is kept busy."""


def conclusion_of(breakdown: Breakdown) -> Conclusion | None:
    """Of the busiest device; without one, of the host's time. None where neither is known or to be trusted."""
    if breakdown.unreliable:
        return None
    device = breakdown.busiest_device
    if device is not None:
        return device_conclusion(device)
    return _host_conclusion(breakdown.host_time) if breakdown.host_time is not None else None


def device_conclusion(device: DeviceBreakdown) -> Conclusion:
    """The largest loss: a cause of idle time, communication that nothing hides, or copies that nothing hides.

    The usual gap between two kernels is no loss. Computing is the conclusion where no loss is worth naming.
    """
    time = device.time
    lost: Counter[Limit] = Counter()
    for cause in device.idle.causes:
        if cause.cause != "queued":
            lost[cause.cause] += cause.nanoseconds
    lost["communication"] += time.exposed_communication_nanoseconds
    lost["copies"] += time.exposed_copy_nanoseconds
    limit, nanoseconds = lost.most_common(1)[0]
    if nanoseconds < WORTH_NAMING * time.window_nanoseconds:
        limit, nanoseconds = "compute", time.compute_nanoseconds
    return Conclusion(limit=limit, nanoseconds=nanoseconds, window_nanoseconds=time.window_nanoseconds)


def _host_conclusion(time: HostTime) -> Conclusion:
    """Operators are computing; everything else is lost time."""
    lost: tuple[tuple[Limit, int], ...] = (
        ("data_loader", time.loader_nanoseconds),
        ("host_sync", time.sync_nanoseconds),
        ("python", time.python_nanoseconds),
    )
    limit, nanoseconds = max(lost, key=itemgetter(1))
    if nanoseconds < WORTH_NAMING * time.step_nanoseconds:
        limit, nanoseconds = "compute", time.operator_nanoseconds
    return Conclusion(limit=limit, nanoseconds=nanoseconds, window_nanoseconds=time.step_nanoseconds)
