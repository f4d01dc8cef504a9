"""How long the device idled and for what, as shares of the untouched script's step. Not a rule itself."""

from __future__ import annotations

from hotlap.diagnose.profile import Profile
from hotlap.diagnose.shares import between, exactly
from hotlap.records import Estimate
from hotlap.trace.records import Breakdown, Cause, DeviceBreakdown, IdleCause

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

    A profiler makes the host slower and leaves the device's work as it is, so a traced step of ``t`` seconds idles
    longer than an untouched one of ``w``, which idles for ``w`` less the device's busy time ``b``. Two ways lead from
    the traced time ``c`` of a cause to the untouched: it keeps its part of all idle time (the value), or it is shorter
    by the factor ``w / t``. The lower of both is the low end; the high end is ``c`` as it was traced. None is above
    ``w - b``. Without a time account the shares are those of the traced window.
    """
    found = _traced(profile)
    if found is None:
        return None
    breakdown, device = found
    part = next((it.nanoseconds for it in device.idle.causes if it.cause == cause), 0)
    wall, steps = profile.account.wall, max(1, len(breakdown.steps))
    if part <= 0 or device.idle.nanoseconds <= 0:
        return exactly(0.0)
    if wall <= 0 or device.in_steps is None or not device.in_steps.window_nanoseconds:
        return exactly(part / max(device.time.window_nanoseconds, 1))
    traced_step = device.in_steps.window_nanoseconds * _NANOSECONDS / steps
    idle = max(0.0, wall - device.in_steps.busy_nanoseconds * _NANOSECONDS / steps)
    traced = part * _NANOSECONDS / steps
    value = idle * min(1.0, part / device.idle.nanoseconds)
    low = min(value, traced * min(1.0, wall / traced_step))
    high = max(value, min(idle, traced))
    return between(value / wall, low / wall, high / wall)


def in_operators(cause: IdleCause) -> float:
    """In which part of a cause's idle time the host was inside operators or calls, rather than in Python."""
    return min(1.0, cause.host_operator_nanoseconds / cause.nanoseconds) if cause.nanoseconds > 0 else 0.0


def _traced(profile: Profile) -> tuple[Breakdown, DeviceBreakdown] | None:
    for breakdown in profile.breakdowns:
        if not breakdown.unreliable and breakdown.devices:
            return breakdown, max(breakdown.devices, key=lambda it: it.time.busy_nanoseconds)
    return None
