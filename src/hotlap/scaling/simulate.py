"""Simulate one rank's step: a stream that computes and a stream that communicates, which may hinder each other.

Each stream does its tasks in their order; a task begins when those that it waits for are done. While both streams are
busy, each runs at ``1 / (2 - hidden_share)`` of its speed: two tasks of the same length then take ``2 - hidden_share``
times as long as one, as :class:`hotlap.records.CollectiveRates` defines it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

Stream: TypeAlias = Literal["compute", "communicate"]
_STREAMS: tuple[Stream, Stream] = ("compute", "communicate")


class Task(NamedTuple):
    """``seconds`` of work of one stream, after the tasks with the numbers ``after``."""

    stream: Stream
    seconds: float
    after: tuple[int, ...] = ()


class Simulated(NamedTuple):
    """``seconds`` of the whole; in ``exposed_seconds`` only communication ran. ``ends`` has one entry per task."""

    seconds: float
    exposed_seconds: float
    ends: tuple[float, ...]


def simulate(tasks: Sequence[Task], hidden_share: float = 1.0) -> Simulated:
    """Run the tasks. Raises :class:`ValueError` where one waits for a task that can never end before it."""
    queues = {stream: [it for it, task in enumerate(tasks) if task.stream == stream] for stream in _STREAMS}
    left = [task.seconds for task in tasks]
    ends: list[float | None] = [None] * len(tasks)
    now = exposed = 0.0
    while any(queues.values()):
        running = {
            stream: queue[0]
            for stream, queue in queues.items()
            if queue and all(ends[it] is not None for it in tasks[queue[0]].after)
        }
        if not running:
            raise ValueError("tasks wait for each other")
        pace = (
            1 / (2 - hidden_share)
            if len(running) == len(_STREAMS) and all(left[it] for it in running.values())
            else 1.0
        )
        elapsed = min(left[it] for it in running.values()) / pace
        now += elapsed
        exposed += elapsed if "compute" not in running else 0.0
        shortest = min(left[it] for it in running.values())
        for stream, task in running.items():
            left[task] = 0.0 if left[task] == shortest else left[task] - shortest
            if left[task] <= 0:
                ends[task] = now
                queues[stream].pop(0)
    return Simulated(now, exposed, tuple(it if it is not None else now for it in ends))
