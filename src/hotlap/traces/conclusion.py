"""The conclusion of a trace: its device's largest loss, or that it computes nearly all of the time."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter

from hotlap.traces.records import Breakdown, Conclusion, DeviceBreakdown, HostTime, Limit

WORTH_NAMING = 0.10
"""As a share of the window. A device whose largest loss is smaller is kept busy."""


def conclusion_of(breakdown: Breakdown) -> Conclusion | None:
    """Conclude for the busiest device, else for the host; None if neither is known or reliable."""
    if breakdown.unreliable:
        return None
    device = breakdown.busiest_device
    if device is not None:
        return device_conclusion(device)
    return _host_conclusion(breakdown.host_time) if breakdown.host_time is not None else None


def device_conclusion(device: DeviceBreakdown) -> Conclusion:
    """The largest loss: a cause of idle time, communication that nothing hides, or copies that nothing hides.

    The usual gap between two kernels does not count. If no loss is large enough, the conclusion is computing.
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
    """Count operators as computing, and everything else as lost time."""
    lost: tuple[tuple[Limit, int], ...] = (
        ("data_loader", time.loader_nanoseconds),
        ("host_sync", time.sync_nanoseconds),
        ("python", time.python_nanoseconds),
    )
    limit, nanoseconds = max(lost, key=itemgetter(1))
    if nanoseconds < WORTH_NAMING * time.step_nanoseconds:
        limit, nanoseconds = "compute", time.operator_nanoseconds
    return Conclusion(limit=limit, nanoseconds=nanoseconds, window_nanoseconds=time.step_nanoseconds)
