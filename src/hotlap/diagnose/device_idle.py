"""How long the device idled and why, as shares of the unmodified script's step. Not a rule itself."""

from __future__ import annotations

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import between, exactly
from hotlap.records import Estimate
from hotlap.traces.records import Breakdown, Cause, DeviceBreakdown, IdleCause

_NANOSECONDS = 1e-9


def traced_device(profile: Profile) -> DeviceBreakdown | None:
    """Return the busiest device of the first reliable trace, or None."""
    found = _traced(profile)
    return found[1] if found else None


def idle_cause(profile: Profile, cause: Cause) -> IdleCause | None:
    """Return the trace's idle time with this cause."""
    device = traced_device(profile)
    return next((it for it in device.idle.causes if it.cause == cause), None) if device else None


def idle_share(profile: Profile, cause: Cause) -> Estimate | None:
    """Return the share of the step in which the device idled for this cause; None without a trace.

    A profiler makes the host slower and does not change the device's work, so a traced step idles longer than an
    unmodified one, which takes ``w`` seconds and idles for ``w`` minus the device's busy time ``b``. The value and the
    low end scale the cause's share of traced idle time to ``w - b``, so all causes together equal the actual idle time.
    The high end is the traced time of the cause, at most ``w - b``. Without a time account, shares refer to the traced
    window.
    """
    found = _traced(profile)
    if found is None:
        return None
    breakdown, device = found
    part = next((it.nanoseconds for it in device.idle.causes if it.cause == cause), 0)
    wall, steps = profile.account.wall, len(breakdown.steps)
    if part <= 0 or device.idle.nanoseconds <= 0:
        return exactly(0.0)
    if wall <= 0 or device.in_steps is None or not steps:
        return exactly(part / max(device.time.window_nanoseconds, 1))
    idle = max(0.0, wall - device.in_steps.busy_nanoseconds * _NANOSECONDS / steps)
    value = idle * min(1.0, part / device.idle.nanoseconds)
    high = max(value, min(idle, part * _NANOSECONDS / steps))
    return between(value / wall, value / wall, high / wall)


def in_operators(cause: IdleCause) -> float:
    """Return the part of a cause's idle time that the host spent in operators or calls, not in Python."""
    return min(1.0, cause.host_operator_nanoseconds / cause.nanoseconds) if cause.nanoseconds > 0 else 0.0


def _traced(profile: Profile) -> tuple[Breakdown, DeviceBreakdown] | None:
    for breakdown in profile.breakdowns:
        device = breakdown.busiest_device
        if not breakdown.unreliable and device is not None:
            return breakdown, device
    return None
