"""How long the device idled and for what, as shares of the untouched script's step. Not a rule itself."""

from __future__ import annotations

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import between, exactly
from hotlap.records import Estimate
from hotlap.traces.records import Breakdown, Cause, DeviceBreakdown, IdleCause

_NANOSECONDS = 1e-9


def traced_device(profile: Profile) -> DeviceBreakdown | None:
    """The busiest device of the first trace that can be trusted; None where there is none."""
    found = _traced(profile)
    return found[1] if found else None


def idle_cause(profile: Profile, cause: Cause) -> IdleCause | None:
    """What the trace says of the idle time that goes to this cause."""
    device = traced_device(profile)
    return next((it for it in device.idle.causes if it.cause == cause), None) if device else None


def idle_share(profile: Profile, cause: Cause) -> Estimate | None:
    """The share of the step in which the device idled for this cause; None where no trace tells.

    A profiler makes the host slower and leaves the device's work as it is, so a traced step idles longer than an
    untouched one, which takes ``w`` seconds and idles for ``w`` less the device's busy time ``b``. The value, and the
    low end, give the cause its traced part of these ``w - b``: so all causes together are the idle time that there is.
    At most, the cause is as long as it was traced, and never longer than ``w - b``. Without a time account the shares
    are those of the traced window.
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
    """In which part of a cause's idle time the host was inside operators or calls, rather than in Python."""
    return min(1.0, cause.host_operator_nanoseconds / cause.nanoseconds) if cause.nanoseconds > 0 else 0.0


def _traced(profile: Profile) -> tuple[Breakdown, DeviceBreakdown] | None:
    for breakdown in profile.breakdowns:
        device = breakdown.busiest_device
        if not breakdown.unreliable and device is not None:
            return breakdown, device
    return None
