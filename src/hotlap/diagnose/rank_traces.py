"""Small traces of ranks that communicate, for the examples of rules about them. Not a rule itself."""

from __future__ import annotations

import msgspec

from hotlap.diagnose.example_traces import trace_of
from hotlap.traces.records import Breakdown, DeviceTime, StepTime, TraceFacts

_STEP_MS = 100.0
_HIDDEN_MS = 5.0


def rank_trace(rank: int, *exposed_ms: float, communicates: bool = True, unreliable: str = "") -> Breakdown:
    """Make steps of 100 ms: so much exposed communication, and computation otherwise.

    If it ``communicates``, another 5 ms of communication overlap with computation.
    """
    hidden = _HIDDEN_MS if communicates else 0.0
    steps = tuple(_step(number, it, hidden) for number, it in enumerate(exposed_ms))
    whole = _time(_STEP_MS * len(steps), sum(exposed_ms), hidden * len(steps))
    like = trace_of()
    device = msgspec.structs.replace(like.devices[0], time=whole, in_steps=whole, steps=steps)
    return msgspec.structs.replace(
        like, facts=TraceFacts(path="trace.json", rank=rank), steps=steps, devices=(device,), unreliable=unreliable
    )


def _step(number: int, exposed_ms: float, hidden_ms: float) -> StepTime:
    return StepTime(
        number=number,
        start_nanoseconds=_nanoseconds(_STEP_MS * number),
        nanoseconds=_nanoseconds(_STEP_MS),
        loader_nanoseconds=0,
        device=_time(_STEP_MS, exposed_ms, hidden_ms),
    )


def _time(window_ms: float, exposed_ms: float, hidden_ms: float) -> DeviceTime:
    return DeviceTime(
        window_nanoseconds=_nanoseconds(window_ms),
        busy_nanoseconds=_nanoseconds(window_ms),
        compute_nanoseconds=_nanoseconds(window_ms - exposed_ms),
        communication_nanoseconds=_nanoseconds(exposed_ms + hidden_ms),
        exposed_communication_nanoseconds=_nanoseconds(exposed_ms),
        copy_nanoseconds=0,
        memset_nanoseconds=0,
        memory_nanoseconds=0,
        events=1000,
    )


def _nanoseconds(milliseconds: float) -> int:
    return round(milliseconds * 1e6)
