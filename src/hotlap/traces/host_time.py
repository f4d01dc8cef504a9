"""Host time within the steps: waiting for data, waiting for the device, operators, and Python."""

from __future__ import annotations

from hotlap.traces.dialects import BACKWARD
from hotlap.traces.hosts import HostActivity, issuing_threads
from hotlap.traces.intervals import subtraction, union
from hotlap.traces.records import HostTime
from hotlap.traces.timeline import Timeline


def host_time(timeline: Timeline) -> HostTime | None:
    """Break down how the threads that train spent the steps; None for a trace without steps.

    These are the thread that carries the step marks, those that issue work to a device, and those that run the
    backward pass: while an autograd thread works, the first one only waits for it.
    """
    if not timeline.steps:
        return None
    activity = HostActivity(timeline, _training_threads(timeline))
    calls = timeline.calls
    steps = union((it.start, it.end) for it in timeline.steps)
    without_loader = subtraction(steps, activity.loader)
    waits = union((calls.start[it.call], it.end) for it in activity.waits)
    without_waits = subtraction(without_loader, waits)
    outside_backward = subtraction(without_waits, activity.backward)
    python = subtraction(outside_backward, activity.operators)
    return HostTime(
        step_nanoseconds=steps.total,
        loader_nanoseconds=steps.total - without_loader.total,
        sync_nanoseconds=without_loader.total - without_waits.total,
        operator_nanoseconds=without_waits.total - python.total,
        python_nanoseconds=python.total,
        backward_nanoseconds=without_waits.total - outside_backward.total,
    )


def _training_threads(timeline: Timeline) -> set[int]:
    operators = timeline.operators
    backward = operators.named(BACKWARD.search)
    running = {thread for name, thread in zip(operators.name, operators.thread, strict=True) if name in backward}
    marked = {it.thread for it in timeline.steps}
    return running | marked | issuing_threads(timeline, range(len(timeline.device)))
